"""Margin of a point within its cell, against all sites; moves points back inside."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer

from spherejax import _checks, _numerics, attacks, distances
from spherejax.distances._lp import Norm
from spherejax.voronoi import _cells, _clearance, _sites

_ROUNDS = 40  # retreats from other sites before a point returns to its own site


class Confined(NamedTuple):
  """Result of `confine`."""

  points: Float[Array, "batch ..."]
  margin: Float[Array, " batch"]
  """Margin as in `cell_margin`; above 0, or 0 at a site that occurs twice."""


def cell_margin(
  points: Float[ArrayLike, "batch ..."],
  own_index: Integer[ArrayLike, " batch"],
  sites: Float[ArrayLike, "sites ..."],
  *,
  norm: Norm = "l2",
  site_labels: Integer[ArrayLike, " sites"] | None = None,
  block_size: int = 128,
) -> Float[Array, " batch"]:
  """Margin by which points are nearer to their own site than to any other.

      M(z) = min_{s != x} ||z - s||_p - ||z - x||_p,    z in the cell of x iff M(z) > 0

  Args:
    points: [batch, ...], floating.
    own_index: [batch], integer: the site of each point.
    sites: [sites, ...], floating.
    norm: "linf", "l2" or "l1". Static.
    site_labels: [sites], integer: only sites of other labels count. None for all.
    block_size: static. Points at once; memory is block_size x sites.

  Returns:
    [batch], dtype of `points`; inf without another site.

  Raises:
    TypeError: points not floating, indices or labels not integers.
    ValueError: shapes do not match, no site, an unknown norm, or a known index that is
      not a site.

  Differentiable in: nothing. Cost: O(batch sites dim).

  Source: DIST III definition 3.

  Example:
    >>> sites = jnp.array([[0.0], [1.0]])
    >>> spherejax.voronoi.cell_margin(jnp.array([[0.25]]), jnp.array([0]), sites)
    Array([0.5], dtype=float32)
  """
  points = _checks.array("points", points)
  flat, site_index, known, labels = _operands(points, own_index, sites, site_labels)
  ball = _sizes(norm)
  return _margin(flat, site_index, known, labels, ball, block_size)[0].astype(
    points.dtype
  )


def _operands(
  points: Array, own_index: ArrayLike, sites: ArrayLike, site_labels: ArrayLike | None
) -> tuple[Array, Array, Array, Array | None]:
  """Checked points, rows of their sites, sites and labels; points and sites flat."""
  site_index, sites = (
    _checks.integers("own_index", own_index),
    _checks.array("sites", sites),
  )
  labels = None
  if site_labels is not None:
    (labels,) = _checks.names(("site_labels", site_labels))
  _sites.check(points, site_index, sites, labels, "points")
  flat = _cells.flat(points)
  return flat, site_index, _cells.flat(sites).astype(flat.dtype), labels


def _sizes(norm: Norm) -> attacks.Ball:
  """Ball that serves only for its norms, which sum in a fixed order."""
  _checks.one_of("norm", norm, Norm)
  nothing = jnp.zeros(())
  return attacks.Ball(norm, nothing, nothing, nothing)


def _margin(
  points: Array,
  site_index: Array,
  sites: Array,
  labels: Array | None,
  ball: attacks.Ball,
  block_size: int,
) -> tuple[Array, Array]:
  """Margin, and the nearest other site."""
  rival = distances.k_nearest(
    points,
    sites,
    k=1,
    norm=ball.norm,
    exclude=site_index,
    apart=None if labels is None else (labels[site_index], labels),
    block_size=block_size,
  )
  index = rival.indices[:, 0]
  away = jnp.where(
    jnp.isinf(rival.distances[:, 0]), jnp.inf, ball.size(points, sites[index])
  )
  return away - ball.size(points, sites[site_index]), index


def confine(
  points: Float[ArrayLike, "batch ..."],
  cells: _cells.VoronoiCells,
  own_index: Integer[ArrayLike, " batch"],
  sites: Float[ArrayLike, "sites ..."],
  *,
  site_labels: Integer[ArrayLike, " sites"] | None = None,
  exact: bool = True,
  block_size: int = 128,
) -> Confined:
  """Brings points into their region with certainty, checked against all sites.

  A point whose margin is not above rounding goes back along the ray to its site, away
  from one other site after another. All sites are checked, unless by the triangle
  inequality the sites in `cells` are the nearest at every point. Never clip or round a
  point afterwards: it may leave its cell.

  Args:
    points: [batch, ...], floating, of an attack in `cells`.
    cells: result of `voronoi_cells`.
    own_index: [batch], integer, as given there.
    sites: [sites, ...], floating, as given there.
    site_labels: as given there.
    exact: True gives the margin to the nearest of all sites. False skips the pass over
      the sites where all sites that can bind are kept (a budget below half of the
      cells' horizon); the margin is then a lower bound. Static.
    block_size: static. Points at once; memory is block_size x sites.

  Returns:
    Confined(points, margin), in the shape of `points`, float32 (float64 for float64).
    Points are in ball and box and their margin is above 0 in exact arithmetic. A site
    that equals another has no cell: its point returns to it, with a margin of 0.
    `voronoi_cells` refuses such sites where they are known.

  Raises:
    TypeError: points not floating, indices or labels not integers, exact not boolean.
    ValueError: shapes do not match, no site, or a known index that is not a site.

  Differentiable in: nothing. Cost: from O(batch neighbours dim) to a few passes over
  the sites.

  Source: DIST III definition 3; cells are star-shaped around their sites in every norm.

  Example:
    >>> sites = jnp.array([[0.0], [1.0]])
    >>> cells = spherejax.voronoi.voronoi_cells(sites[:1], jnp.array([0]), sites)
    >>> spherejax.voronoi.confine(
    ...   jnp.array([[0.8]]), cells, jnp.array([0]), sites).points.round(3)
    Array([[0.5]], dtype=float32)
  """
  _checks.flag("exact", exact)
  _checks.instance("cells", cells, _cells.VoronoiCells)
  points = _checks.array("points", points)
  flat, site_index, known, labels = _operands(points, own_index, sites, site_labels)
  clean = known[site_index]
  _checks.shape("cells.epsilon", cells.epsilon, (len(flat),), "the points")
  flat = cells.ball.seal(flat, clean)

  def look(points: Array) -> tuple[Array, Array]:
    """Margin, and the move to the site that sets it."""
    moved = cells.apart(points, clean)
    margin, v = _near_margin(points, clean, moved, cells)
    # No other site can have a smaller margin.
    rest = cells.horizon - 2 * moved
    sure = margin * (1 + 1e-5) <= rest
    if not exact:
      sure |= rest > 2 * _clearance.required(cells.nearest, moved)
      margin = jnp.where(sure, jnp.minimum(margin, rest), margin)

    def all_sites() -> tuple[Array, Array]:
      ball = cells.ball._replace(norm=cells.norm)
      total, index = _margin(points, site_index, known, labels, ball, block_size)
      lower = ~sure & (total < margin)
      return (
        jnp.where(lower, total, margin),
        jnp.where(lower[:, None], known[index] - clean, v),
      )

    return _numerics.either(jnp.all(sure), lambda: (margin, v), all_sites)

  def short(points: Array, margin: Array) -> Array:
    return margin < _clearance.required(cells.nearest, cells.apart(points, clean)) / 2

  def retreat(carry):
    count, points, margin, v, outside = carry
    delta = points - clean
    every = jnp.ones((len(points), 1), bool)
    share = _clearance.stay(delta, v[:, None], every, cells.nearest, cells.norm)
    # Points that only rounding has left outside, and the end of the loop.
    share = jnp.where(share > 0.999, 0.5, share) * (count < _ROUNDS)
    back = cells.ball.seal(clean + share[:, None] * delta, clean)
    points = jnp.where((outside & (count > 0))[:, None], back, points)
    new, v = look(points)
    margin = jnp.where(outside, new, margin)
    return count + 1, points, margin, v, outside & short(points, margin)

  # The first round only measures.
  batch = len(flat)
  count, margin = jnp.int32(0), jnp.zeros(batch, flat.dtype)
  carry = (count, flat, margin, clean, jnp.ones(batch, bool))
  carry = _numerics.varying(carry, cells, known, labels)
  _, inside, margin, _, _ = jax.lax.while_loop(
    lambda c: (c[0] <= _ROUNDS) & jnp.any(c[-1]), retreat, carry
  )
  return Confined(inside.reshape(points.shape), margin)


def _near_margin(
  points: Array, clean: Array, moved: Array, cells: _cells.VoronoiCells
) -> tuple[Array, Array]:
  """Margin among the near sites, and the move to the site that sets it."""
  if not cells.towards.shape[1]:
    return jnp.full_like(moved, jnp.inf), jnp.zeros_like(clean)
  gap = (points - clean)[:, None] - cells.towards
  away = distances.lp_norm(gap, norm=cells.norm)
  known = jnp.any(cells.towards != 0, axis=2)
  place = jnp.argmin(jnp.where(known, away, jnp.inf), axis=1)
  v = jnp.take_along_axis(cells.towards, place[:, None, None], 1)[:, 0]
  # A site at the same place leaves no margin; its move of 0 also stands for no site.
  twice = cells.nearest == 0
  known, v = known | twice[:, None], jnp.where(twice[:, None], 0, v)
  # Summed in the fixed order; clean + v is the site up to a rounding.
  least = jnp.where(jnp.any(known, axis=1), cells.apart(points, clean + v), jnp.inf)
  return least - moved, v
