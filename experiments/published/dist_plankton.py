"""What DIST, article I, printed; its classes by the names of ZooScanNet's folders."""

import re

# Recall of the softmax classifier on 100 test images a class, in percent. The two
# broken cells of the table (errata) are left out.
RECALL = {
  "Acantharea": 82, "Acartiidae": 93, "Actinopterygii": 95, "Annelida": 84,
  "Bivalvia__Mollusca": 93, "Brachyura": 98, "bubble": 97, "Calanidae": 74,
  "Calanoida": 97, "calyptopsis": 91, "Candaciidae": 74, "Cavoliniidae": 91,
  "Centropagidae": 60, "Chaetognatha": 96, "Copilia": 92, "Corycaeidae": 94,
  "Coscinodiscus": 99, "Creseidae": 95, "cyphonaute": 100, "cypris": 81,
  "Decapoda": 92, "Doliolida": 96, "egg__Actinopterygii": 95,
  "egg__Cavolinia_inflexa": 82, "Eucalanidae": 78, "Euchaetidae": 65,
  "eudoxie__Diphyidae": 80, "Evadne": 95, "Foraminifera": 87, "Fritillariidae": 87,
  "gonophore__Diphyidae": 84, "Haloptilus": 91, "Harpacticoida": 86,
  "Hyperiidea": 76, "larvae__Crustacea": 47, "Limacidae": 58, "Limacinidae": 87,
  "Luciferidae": 72, "megalopa": 94, "multiple__Copepoda": 79,
  "nauplii__Cirripedia": 97, "nauplii__Crustacea": 99, "nectophore__Diphyidae": 88,
  "nectophore__Physonectae": 94, "Neoceratium": 90, "Noctiluca": 97, "Obelia": 95,
  "Oikopleuridae": 99, "Oithonidae": 95, "Oncaeidae": 89, "Ophiuroidea": 93,
  "Ostracoda": 94, "Penilia": 99, "Phaeodaria": 95, "Podon": 76, "Pontellidae": 94,
  "Rhincalanidae": 77, "Salpida": 92, "Sapphirinidae": 85, "scale": 82,
  "seaweed": 86, "tail__Appendicularia": 85, "tail__Chaetognatha": 49,
  "Temoridae": 97, "zoea__Decapoda": 92,
}  # fmt: skip

# Of the same table: images of other classes, in percent, that were called Calanoida.
CALLED_CALANOIDA = {
  "Acartiidae": 7, "Calanidae": 24, "Candaciidae": 16, "Centropagidae": 39,
  "Eucalanidae": 9, "Euchaetidae": 32, "Haloptilus": 5, "Hyperiidea": 7,
  "multiple__Copepoda": 7, "Oithonidae": 5,
}  # fmt: skip

FIGURES = {
  ("softmax classifier", "macro F1, seen, all test images"): 0.87,
  ("softmax classifier", "accuracy, seen, all test images"): 0.877,
  ("embedding", "macro F1, seen, k = 10"): 0.84,
  ("embedding", "macro F1, unseen, k = 10"): 0.61,
  ("embedding", "accuracy of centroids, last iteration"): 0.838,
}

# F1 of classes that the text names (3.4): of the softmax classifier on all test images;
# of the embedding, where it does not say by which way; of centroids for unseen classes.
F1_CLASSIFIER = {
  "nauplii__Crustacea": 0.93, "nauplii__Cirripedia": 0.97,
  "egg__Cavolinia_inflexa": 0.93, "egg__Actinopterygii": 0.94,
  "Calanoida": 0.50, "larvae__Crustacea": 0.62,
}  # fmt: skip
F1_EMBEDDING = {
  "nauplii__Crustacea": 0.69, "nauplii__Cirripedia": 0.51,
  "egg__Cavolinia_inflexa": 0.33, "egg__Actinopterygii": 0.70,
  "Calanoida": 0.96, "larvae__Crustacea": 0.84,
}  # fmt: skip
F1_UNSEEN = {
  "Rhopalonema": 0.86, "egg__other": 0.83, "badfocus__artefact": 0.82,
  "Euchirella": 0.07, "eudoxie__Abylopsis_tetragona": 0.11, "Aglaura": 0.19,
  "nectophore__Abylopsis_tetragona": 0.26, "multiple__other": 0.29,
  "gonophore__Abylopsis_tetragona": 0.38,
}  # fmt: skip

# Rates of the ten commonest confusions, k = 10: seen and unseen classes.
CONFUSIONS = {
  ("tail__Appendicularia", "tail__Chaetognatha"): 0.38,
  ("Oncaeidae", "Harpacticoida"): 0.26,
  ("Chaetognatha", "tail__Chaetognatha"): 0.26,
  ("Euchaetidae", "Candaciidae"): 0.22,
  ("Eucalanidae", "Rhincalanidae"): 0.20,
  ("Harpacticoida", "Oncaeidae"): 0.18,
  ("nectophore__Diphyidae", "gonophore__Diphyidae"): 0.18,
  ("Rhincalanidae", "Eucalanidae"): 0.18,
  ("Centropagidae", "Euchaetidae"): 0.16,
  ("Limacidae", "Limacinidae"): 0.16,
  ("eudoxie__Abylopsis_tetragona", "nectophore__Abylopsis_tetragona"): 0.32,
  ("Scyphozoa", "ephyra"): 0.28,
  ("Rhopalonema", "Aglaura"): 0.26,
  ("gonophore__Abylopsis_tetragona", "nectophore__Abylopsis_tetragona"): 0.24,
  ("Calocalanus pavo", "Euchirella"): 0.24,
  ("nectophore__Abylopsis_tetragona", "eudoxie__Abylopsis_tetragona"): 0.22,
  ("badfocus__artefact", "detritus"): 0.20,
  ("Calocalanus pavo", "part__Copepoda"): 0.18,
  ("Echinoidea", "larvae__Annelida"): 0.18,
  ("artefact", "badfocus__artefact"): 0.18,
}


def plain(name: str) -> str:
  """A class's name without what tables and folders write differently."""
  return re.sub(r"[^a-z]", "", name.lower())


_RATES = {tuple(map(plain, pair)): rate for pair, rate in CONFUSIONS.items()}


def confusion(label: str, prediction: str) -> float | None:
  """The printed rate of a confusion; None where it is not among the commonest."""
  return _RATES.get((plain(label), plain(prediction)))
