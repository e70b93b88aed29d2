"""The class trees of DIST, article IV, without that of NABirds, which it brings itself.

`a{b, c}` are children, `a/b` is a single child, `a*` a class with children. The
plankton trees are read off the article's pictures and its released class lists, with
their spelling. CIFAR-100 has its 20 superclasses of five classes under two levels.
"""

import re

MICRO_S = """
Ciliophora/Oligotrichea{Choreotrichida{Eutintinnus/Eutintinnus sp,
Leegardiella/Leegardiella sp, Lohmanniella/Lohmanniella spp, Salpingella/Salpingella
sp, Stenosemella/Stenosemella spp, Strobilidium/Strobilidium spp,
Tintinnopsis/Tintinnopsis spp}, Litostomatea/Mesodinium{Mesodinium rubrum,
Mesodinium sp, Mesodinium sp2}, Oligotrichea spp, Oligotrichida{Laboea/Laboea spp,
Strombidium{Strombidium cf acutum, Strombidium cf epidemum, Strombidium conicum,
Strombidium dalum, Strombidium emegens}, Tontonia/Tontonia spp},
Prostomatea{Prostomatea sp, Tiarina/Tiarina sp}},
Cryptophyta/Cryptophyceae/Pyrenomonadales/Pyrenomonadales spp,
Euglenozoa/Euglenophyceae/Euglenales/Euglena/Euglena sp,
Haptophyta/Prymnesiophyceae/Phaeocystales/Phaeocystis/Phaeocystis pouchetii,
Incertae sedis/Flagellata incertae sedis/Flagellates{Flagellates spp1, Flagellates
spp2, Flagellates spp3, Flagellates spp4},
Myzozoa/Dinophyceae{Amphidiniales/Amphidinium/Amphidinium sphenoides, Dinophyceae
incertae sedis/Dinophyceae spp{Dinophyceae sp1, Dinophyceae sp10, Dinophyceae sp11,
Dinophyceae sp12, Dinophyceae sp2, Dinophyceae sp3, Dinophyceae sp4, Dinophyceae
sp5, Dinophyceae sp6, Dinophyceae sp9, Dinophyceae spp1, Dinophyceae spp2},
Dinophysiales/Dinophysis{Dinophysis acuminata, Dinophysis norvegica, Dinophysis sp1,
Dinophysis sp2}, Diplopsalis/Diplopsalis sp, Gonyaulacales{Alexandrium/Alexandrium
sp, Tripos{Tripos furca, Tripos lineatus, Tripos minutum, Tripos muelleri}},
Gymnodiniales{Akashiwo/Akashiwo sanguinea, Gymnodiniales sp1, Gymnodiniales sp2,
Gyrodinium{Gyrodinium dominans, Gyrodinium sp2, Gyrodinium spirale}, Karenia/Karenia
mikimotoi, Karlodinium/Karlodinium spp, Polykrikos/Polykrikos schwartzii,
Torodinium/Torodinium robustrum}, Peridiniales{Heterocapsa/Heterocapsa rotundata,
Oxytoxum/Oxytoxum gracile cf, Protoperidinium{Protoperidinium sp1, Protoperidinium
spp}, Scripsiella/Scripsiella spp}, Prorocentrales/Prorocentrum{Prorocentrum micans,
Prorocentrum minimum}, Tovelliales/Katodinium/Katodinium glaucum},
Ochrophyta{Bacillariophyceae{Bacillariales{Cylindrotheca-Nitzschia/
Cylindrotheca-Nitzschia spp, Pseudo-nitzschia/Pseudo-nitzschia sp},
Bacillariophyceae spp{Bacillariophyceae spp1, Bacillariophyceae spp2},
Chaetocerotanae/Chaetoceros{Chaetoceros sp1, Chaetoceros spp},
Hemiaulales/Cerataulina pelagica, Leptocylindrales/Leptocylindrus minimus,
Lithodesmiales/Ditylum/Ditylum brightwellii,
Rhizosoleniales{Dactyliosolen/Dactyliosolen fragilissimus, Guinardia{Guinardia
delicatula, Guinardia flaccida}, Proboscia/Proboscia alata,
Rhizosolenia/Rhizosolenia spp, Rhizosoleniales spp1},
Thalassiosirales{Skeletonema/Skeletonema spp, Thalassionema/Thalassionema sp,
Thalassiosira/Thalassiosira spp{Thalassiosira sp chain, Thalassiosira sp single}}},
Chrysophyceae/Chromulinales/Dinobryon/Dinobryon sp,
Dictyochophyceae/Dictyochales/Dictyocha{Dictyocha fibula, Dictyocha speculum}},
nonliving{artefact{background{background l, background s}, bubble{large bubbles,
small bubbles}}, debris{blurry particles, debris as ciliate, debris as diat2, debris
crypto, debris dark, debris dino, debris light, debris yellow, debris1, debris_diat,
debrisundet flag, dldebris, fibers, ldebris, sdebris}}
"""
MICRO_L = """
Mesozooplankton{Crustacea{Copepoda{Copepoda sp1, Copepoda sp2, Copepoda spp, Oithona
sp, Temora sp}, Crustacea incertae sedis/Nauplius spp{Nauplius spp1, Nauplius spp2,
Nauplius spp4, Nauplius spp5, Nauplius spp6}}, Mollusca/Gastropoda/Gastroppoda
spp{Pediveliger, Trochophore larvae, Unknown gastropoda, Veliger larvae},
Undetrermined egg},
Microplankton{Ciliophora/Oligotrichea{Choreotrichida{Choreotrichida spp,
Eutintinnus/Eutintinnus apertus, Favella/Favella sp, Leegardiella/Leegaardiella sp,
Lohmanniella/Lohmanniella oviformis, Strobilidium/Strobilidium sp},
Oligotrichida{Strombidium{Strombidium conicum, Strombidium emergens, Strombidium
epidemum, Strombidium lynni, Strombidium sp2, Strombidium_sp1}, Tontonia{Tontonia
caudata, Tontonia sp}}, Prostomatea/Tiarina{Tiarina fusus, Tiarina sp}}, Incertae
sedis/Undetermined non-diatom{Lprotists, Mprotists, Sprotists, XLprotists,
XSprotists, Xsprotist}, Myzozoa/Dinophyceae{Dinophyceae incertae sedis/Dinophyceae
spp{Dinophyceae sp1, Dinophyceae sp2}, Dinophysiales/Dinophysis{Dinophysis spp,
Dinophysis tripos}, Gonyaulacales/Tripos{Tripos furca*{Tripos furca duplets}, Tripos
fusus, Tripos lineatum, Tripos longipes, Tripos macroceros, Tripos muelleri, Tripos
sp}, Gymondiniales{Akashiwo/Akashiwo sanguineum, Gyrodinium/Gyrodinium spp},
Noctilucales/Noctiluca/Noctiluca scintilans,
Peridiniales/Protoperidinium/Protoperidinium spp{LProtoperidinium, Protoperidinium
apical/Protoperidinium apical, SProtoperidinium}},
Ochrophyta{Bacillariophyceae{Bacillariophyceae incertae sedis/Bacillariophyceae
spp{Bacillariophyceae sp1, Bacillariophyceae sp2, Bacillariophyceae sp3,
Bacillariophyceae spp1, Bacillariophyceae spp2, Bacillariophyceae spp4,
Bacillariophyceae spp5, Bacillariophyceae spp6, Bacillariophyceae spp7,
Bacillariophyceae spp8}, Chaetoceros{Chaetoceros socialis, Chaetoceros spp1,
Chaetoceros spp3}, Coscinodiscus/Coscinodiscus spp, Guinardia/Guinardia flaccida,
Proboscia/Proboscia indica, Skeletonema/Skeletonema spp, Thalassiosira/Thalassiosira
spp{Thalassiosira single, Thalassiosira sp1, Thalassiosira sp2}},
Dicthyophyceae/Dictyocha/Dictyocha speculum}},
nonplankton{artifacts{background{background lugol, dry background, large
background{background dirtyl, background dirtys, backgroundL, dirty background m,
light background}, medium background, small background}, bubbles{lbubbleshalf,
sbubbles}, nano duplets, scratch, shadows, yellow image{yellow empty, yellow large,
yellow sspheres}}, fibers, pom{lpom, lugol pom, mpom{dmpom, lmpom}, ndpom, nlpom,
npom, spom}}
"""
MESO_Z = """
Mesozooplankton{Annelida/Polychaeta/Polychatea sp1,
Chaetognata/Sagittoidea/Sagittoidea sp1,
Cnidaria/Hydrozoa{Bythotiaridae/Bythotiaridae spp, Undetermined hydrozoa},
Crustacea{Branchiopoda/Cladocera{Cladocera sp1, Evadne spp},
Copepoda{Calanoida{Calanoida 1-3/Calanoida spp 1-3, Calanoida 4-6{Calanus spp,
Centropages sp, Metridia sp, Microcalanus spp, Pseudo-Paracalanus spp, Temora spp}},
Cyclopoida/Oithona/Oithona sp, Undetermined copepodites, Undetermined
copepods{Apical copepod/Apical small, Multiple copepods}},
Malacostraca/Euphausiacea{Euphausiaceae calyptopsis, Euphausiaceae egg,
Euphausiaceae furcilla}, Ostracoda{Ostracoda sp1, Ostracoda sp2}, Undetermined
Nauplii{Nauplii 1-3, Nauplii 4-6}}, Echinodermata/Echinodermata spp,
Mollusca/Gastropoda/Pteropoda/Pteropod sp1, Other/Undetermined egg/Undetermined
egg1, Tunicata/Appendicularia/Appendicularia sp1, Vertebrata/Teleostei
egg{Maurolicus/Maurolicus muelleri, Undet teleostei egg}},
nonzooplankton{artifacts{bubbles{dry cell bubbles, l bubbles, s bubbles}, dark line,
dark s background, small shadows}, debris and pom{debris{debris 3, debris l, debris
s}, empty shell, pom{long pom, pom l/dlpom, pom s}, threads{threadlike l, threadlike
s}}, protists{ceratium, ceratium aggregate, diatoms}, undetermined particles{unident
part, unidentified1, unidentified2, unidentified3}}
"""
CIFAR_100 = """
Animals{Invertebrates{insects{bee, beetle, butterfly, caterpillar, cockroach},
non-insect invertebrates{crab, lobster, snail, spider, worm}}, Mammals{aquatic
mammals{beaver, dolphin, otter, seal, whale}, large carnivores{bear, leopard, lion,
tiger, wolf}, large omnivores and herbivores{camel, cattle, chimpanzee, elephant,
kangaroo}, medium mammals{fox, porcupine, possum, raccoon, skunk}, people{baby, boy,
girl, man, woman}, small mammals{hamster, mouse, rabbit, shrew, squirrel}}, Non-mammal
vertebrates{fish{aquarium_fish, flatfish, ray, shark, trout}, reptiles{crocodile,
dinosaur, lizard, snake, turtle}}}, Artificial{indoor{food containers{bottle, bowl, can,
cup, plate}, household electrical devices{clock, keyboard, lamp, telephone, television},
household furniture{bed, chair, couch, table, wardrobe}}, outdoor{large man-made outdoor
things{bridge, castle, house, road, skyscraper}, vehicles 1{bicycle, bus, motorcycle,
pickup_truck, train}, vehicles 2{lawn_mower, rocket, streetcar, tank, tractor}}},
Nature{non-specific organism{large natural outdoor scenes{cloud, forest, mountain,
plain, sea}}, Plants{flowers{orchid, poppy, rose, sunflower, tulip}, fruit and
vegetables{apple, mushroom, orange, pear, sweet_pepper}, trees{maple_tree, oak_tree,
palm_tree, pine_tree, willow_tree}}}
"""


def paths(notation: str) -> list[tuple[str, ...]]:
  """One path for each class, in order of appearance."""
  found, prefix, stack, before = [], (), [], ""
  for name, sign in re.findall(r"([^{},]*)([{},]|$)", " ".join(notation.split())):
    parts = tuple(part.strip() for part in name.split("/") if part.strip())
    if parts and before != "}":
      path = prefix + tuple(part.rstrip("*") for part in parts)
      if sign != "{" or parts[-1].endswith("*"):
        found.append(path)
      if sign == "{":
        stack.append(prefix)
        prefix = path
    if sign == "}":
      prefix = stack.pop()
    before = sign
  return found
