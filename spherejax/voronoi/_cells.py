"""Voronoi cells cut by norm balls and a box, as a region for any attack."""

import functools
import math
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer, Real

from spherejax import _checks, _compiled, _numerics, attacks, distances
from spherejax.attacks._ball import radii
from spherejax.attacks._box import box, check_radius
from spherejax.distances._lp import Norm
from spherejax.solvers import project_ball
from spherejax.voronoi import _clearance, _pace, _sites

# A sweep that moves a point by less than this share ends its projection.
_SETTLED = 1e-3
_ROWS = 16  # samples that are projected at once
_PASSES = 2  # passes over the half-spaces in one sweep


class VoronoiCells(NamedTuple):
  """Region of a ball and a box in which points are nearest to their own site.

  Only sites within twice the ball's largest distance in `norm` can bound a cell inside
  the ball; `towards` has the nearest of them. Distances from sites are in `norm`; sizes
  of moves and of steps are in the ball's norm.
  """

  ball: attacks.Ball
  """The ball and the box; its radius may be inf."""
  norm: Norm
  """Norm of the cells: "linf", "l2" or "l1"."""
  epsilon: Array
  """[batch]: a finite radius, for starts and steps."""
  closest: Array
  """[batch]: distance to the nearest other site in the ball's norm; inf without one."""
  reach: Array
  """[batch]: finite; largest distance from the site that ball and box allow."""
  towards: Array
  """[batch, neighbours, entries]: from the site to the near others."""
  products: Array
  """[batch, neighbours, neighbours]: inner products of these; for l2."""
  present: Array
  """Mask [batch, neighbours] of the sites that can bound the region."""
  nearest: Array
  """[batch]: distance to the nearest other site; inf without one."""
  horizon: Array
  """[batch]: lower bound of the distance to sites not in `towards`; inf without any."""
  sweeps: int
  """Number of sweeps of the projection in l2. Static."""

  @property
  def complete(self) -> Array:
    """[batch]: whether `towards` has every site that can bound the region."""
    reach = 2 * _widening(self.norm, self.ball) * self.ball.epsilon
    return jnp.isinf(self.horizon) | (self.horizon > reach)

  def start(self, keys: Array, clean: Array) -> Array:
    """Draws points from the ball and pulls them back into the cell along the ray.

    Where another site can bind, a random half of the points instead go a uniform share
    of the way to the end of the cell in their direction, which may be far away.
    """
    drawn = self.ball._replace(epsilon=self.epsilon).start(keys, clean)
    near = self._into(drawn - clean, drawn - clean, clean, 0)
    split = jax.vmap(lambda key: jax.random.split(key, 3))(keys)
    ahead = self.ball._replace(epsilon=self.reach).start(split[:, 0], clean) - clean
    size = self.ball.size(clean + ahead, clean)
    ahead *= _numerics.divide(2 * self.reach, size)[:, None]
    ahead = jnp.clip(ahead, self.ball.low - clean, self.ball.high - clean)
    draw = functools.partial(jax.random.uniform, dtype=clean.dtype)
    share = jax.vmap(draw)(split[:, 1])[:, None]
    far = clean + share * (self._into(ahead, ahead, clean, 0) - clean)
    coin = jax.vmap(jax.random.bernoulli)(split[:, 2]) & ~_pace.free(
      self.ball.epsilon, self.closest
    )
    return jnp.where(coin[:, None], self.ball.seal(far, clean), near)

  def project(self, points: Array, clean: Array) -> Array:
    """Projects onto ball and box exactly; in l2 onto the cell; then back along the ray.

    The result is inside the cell of the near sites with a margin above the rounding of
    a distance; `confine` checks all sites.
    """
    points = jnp.where(jnp.isfinite(points), points, clean)
    onto = self.ball.project(points, clean)
    return self._into(points - clean, onto - clean, clean, self.sweeps)

  def paces(self, steps: int) -> Array:
    """Sizes of steps, [steps, batch], that follow the reach of the cell."""
    return _pace.sizes(self.ball.epsilon, self.closest, self.reach, steps)

  def ascend(self, gradients: Array) -> Array:
    """Steepest directions in the ball's norm."""
    return self.ball.ascend(gradients)

  def size(self, points: Array, clean: Array) -> Array:
    """Norms of the moves in the ball's norm."""
    return self.ball.size(points, clean)

  def apart(self, points: Array, clean: Array) -> Array:
    """Distances [batch] in the cells' norm, summed in a fixed order."""
    return self.ball._replace(norm=self.norm).size(points, clean)

  def _into(self, wanted: Array, onto: Array, clean: Array, sweeps: int) -> Array:
    """Brings the move `onto`, in ball and box, into the cell; `wanted` is unclipped."""
    size = distances.lp_norm(onto, norm=self.norm)

    def cut() -> Array:
      if self.norm != "l2":
        share = _clearance.stay(
          onto, self.towards, self.present, self.nearest, self.norm
        )
        return share[:, None] * onto
      squares = jnp.diagonal(self.products, axis1=1, axis2=2)
      used = self.present & (squares > 0)
      limit = jnp.where(used, squares * (0.5 - _clearance.OF_NEAREST), jnp.inf)
      inner = self._along(onto)
      move, outside = onto, jnp.any(inner > limit, axis=1)
      if sweeps:
        move, inner = self._onto_cell(wanted, onto, outside, inner, limit, clean)
      share = _clearance.stay_l2(move, inner, squares, self.present, self.nearest)
      return share[:, None] * move

    # No site binds below half the distance to the nearest other site.
    free = size <= self.nearest * (0.5 - _clearance.OF_MOVE)
    move = _numerics.either(jnp.all(free), lambda: onto, cut)
    return self.ball.seal(clean + move, clean)

  def _onto_cell(
    self,
    wanted: Array,
    onto: Array,
    outside: Array,
    inner: Array,
    limit: Array,
    clean: Array,
  ) -> tuple[Array, Array]:
    """Projects moves that are outside, in blocks; also returns inner products."""
    order, number = jnp.argsort(~outside), jnp.sum(outside)
    size = min(_ROWS, len(onto))

    def some(carry):
      start, move, reach = carry
      rows = jax.lax.dynamic_slice(order, (start,), (size,))
      ball = self.ball._replace(
        epsilon=self.ball.epsilon[rows],
        low=self.ball.low[rows],
        high=self.ball.high[rows],
      )
      part = self._replace(
        ball=ball, towards=self.towards[rows], products=self.products[rows]
      )
      operands = (wanted, onto, outside, inner, limit, clean)
      new, along = part._alternate(*(v[rows] for v in operands))
      return start + size, move.at[rows].set(new), reach.at[rows].set(along)

    end = jax.lax.while_loop(lambda c: c[0] < number, some, (0, onto, inner))
    return end[1], end[2]

  def _along(self, v: Array) -> Array:
    return _numerics.einsum("bkn,bn->bk", self.towards, v)

  def _alternate(
    self,
    wanted: Array,
    onto: Array,
    outside: Array,
    inner: Array,
    limit: Array,
    clean: Array,
  ) -> tuple[Array, Array]:
    """Dykstra's projection of moves onto half-spaces, ball and box.

    The corrections of the half-spaces are scalars, and passes over them need only inner
    products. Moves that are not `outside` stay as they are.
    """
    squares = jnp.diagonal(self.products, axis1=1, axis2=2)
    weight = jnp.where(jnp.isfinite(limit), 1 / jnp.where(squares > 0, squares, 1), 0)
    low, high = self.ball.low - clean, self.ball.high - clean
    count = limit.shape[1]

    def into_ball(moves):
      if self.ball.norm == "l2":
        size = _numerics.norm(moves)
        share = self.ball.epsilon / jnp.where(size > 0, size, 1)
        return moves * jnp.minimum(1, share)[:, None]

      def project(move, radius):
        return project_ball(move, jnp.zeros_like(move), radius, norm=self.ball.norm)

      return jax.vmap(project)(moves, self.ball.epsilon)

    def bounded(j, carry):
      reach, dual = carry
      j = j % count
      gap = (reach[:, j] - limit[:, j]) * weight[:, j]
      new = jnp.maximum(dual[:, j] + jnp.where(weight[:, j] > 0, gap, 0), 0)
      reach = reach + self.products[:, j] * (dual[:, j] - new)[:, None]
      return reach, dual.at[:, j].set(new)

    def sweep(carry):
      number, old, inner, dual, in_ball, in_box, active = carry
      _, new_dual = jax.lax.fori_loop(0, _PASSES * count, bounded, (inner, dual))
      back = (dual - new_dual)[:, None]
      v = old + _numerics.product(back, self.towards)[:, 0]
      before = v + in_ball
      v = into_ball(before)
      new_ball = before - v
      before = v + in_box
      v = jnp.clip(before, low, high)
      new_box = before - v
      reach = jnp.max(jnp.abs(v), axis=1)
      change = jnp.max(jnp.abs(v - old), axis=1)
      duals = jnp.max(jnp.abs(new_dual - dual) * jnp.sqrt(squares), axis=1)

      def where(new, old):
        return jnp.where(active[:, None], new, old)

      return (
        number + 1,
        where(v, old),
        where(self._along(v), inner),
        where(new_dual, dual),
        where(new_ball, in_ball),
        where(new_box, in_box),
        active & (change + duals > _SETTLED * reach),
      )

    start = jnp.where(outside[:, None], wanted, onto)
    nothing = jnp.zeros_like(onto)
    inner = jnp.where(outside[:, None], self._along(start), inner)
    carry = (0, start, inner, jnp.zeros_like(inner), nothing, nothing, outside)
    end = jax.lax.while_loop(
      lambda c: (c[0] < self.sweeps) & jnp.any(c[-1]), sweep, carry
    )
    return end[1], end[2]


def _widening(norm: Norm, ball: attacks.Ball) -> float:
  """Largest ratio of a move's size in the cells' norm to its size in the ball's."""
  inverse = {"linf": 0.0, "l2": 0.5, "l1": 1.0}
  return ball.low.shape[1] ** max(0.0, inverse[norm] - inverse[ball.norm])


def flat(array: ArrayLike) -> Array:
  """[batch, n] in the computing type."""
  array = _checks.array("array", array)
  return _numerics.flat_rows(jax.lax.stop_gradient(_numerics.upcast(array)))


def voronoi_cells(
  x: Float[ArrayLike, "batch ..."],
  own_index: Integer[ArrayLike, " batch"],
  sites: Float[ArrayLike, "sites ..."],
  *,
  epsilon: Real[ArrayLike, "..."] = math.inf,
  norm: Norm = "l2",
  ball_norm: Norm | None = None,
  neighbours: int = 32,
  nearest: distances.Neighbours | None = None,
  site_labels: Integer[ArrayLike, " sites"] | None = None,
  low: Real[ArrayLike, "..."] = 0.0,
  high: Real[ArrayLike, "..."] = 1.0,
  share: float = 0.05,
  sweeps: int = 20,
  block_size: int = 128,
) -> VoronoiCells:
  """Region of a norm ball and a box that is nearer to a site than to all others.

      {z: ||z - x||_q < ||z - s||_q for all other sites s, ||z - x||_p <= epsilon,
       low <= z <= high}

  Only near sites matter: for q of at least p, a site farther than 2 epsilon never
  binds; for q below p and n entries, the limit is 2 n^(1/q - 1/p) epsilon. Pass the
  result as `region` to the attacks of a fixed budget; `voronoi_pgd` does so and
  compares the points with all sites.

  Args:
    x: [batch, ...], floating: sites, each exactly the site of `own_index`.
    own_index: [batch], integer, the rows of x among the sites.
    sites: [sites, ...], floating, different points, or equal ones of one label of
      `site_labels`: see `merge_sites`. A traced site that occurs twice has no cell, and
      its points stay.
    epsilon: radius, at least 0, one number or [batch]; may be traced; inf leaves
      only cell and box. A known finite radius beyond the extent of a known box is an
      error.
    norm: q, of the cells: "linf", "l2" or "l1". Static.
    ball_norm: p, of the ball and the steps, likewise. None is `norm`. Static.
    neighbours: static. Number of nearest sites kept for each sample. If more sites can
      bind, points may leave the cell meanwhile, and `confine` brings them back.
    nearest: result of `distances.k_nearest` for the rows of x, each excluding
      itself; None computes it here. For training, compute it once.
    site_labels: [sites], integer: only sites of other labels bound a cell. None for all
      sites.
    low: least value of an entry; broadcasts to x.
    high: largest value; likewise.
    share: for an l1 ball, the share of the entries that a step moves; at least one
      moves. Static.
    sweeps: static, for l2 cells: sweeps of Dykstra's projection onto the cell; most
      points need few. With 0, points only go back along the ray, as in the other norms.
    block_size: static. Samples at once in the search.

  Returns:
    VoronoiCells, a region; `complete` is True where no site was left out.

  Raises:
    TypeError: points not floating, indices or labels not integers.
    ValueError: shapes do not match, no site, an unknown norm, neighbours below 1; where
      known: a row of x that is not its site or not in the box; an index out of range;
      equal sites of different labels, a site that is not finite; low > high, epsilon
      below 0; an infinite epsilon and box with an infinite cell (in l1 and l-infinity:
      with any cell).

  Differentiable in: nothing. Cost: O(batch sites dim) once, O(batch neighbours dim)
  memory.

  Source: DIST III definitions 3 and 4 and lemma 1; the projection by Boyle and Dykstra
  1986, "A method for finding projections onto the intersection of convex sets in
  Hilbert spaces".

  Example:
    >>> sites = jnp.array([[0.0], [0.5], [1.0]])
    >>> cells = spherejax.voronoi.voronoi_cells(sites, jnp.arange(3), sites)
    >>> cells.project(sites + 0.4, sites).round(2)
    Array([[0.25],
           [0.75],
           [1.  ]], dtype=float32)
  """
  _checks.share("share", share)
  x = _checks.array("x", x)
  index = _checks.integers("own_index", own_index)
  sites = _checks.array("sites", sites)
  labels = (
    None if site_labels is None else _checks.names(("site_labels", site_labels))[0]
  )
  _sites.check(x, index, sites, labels, "x")
  _compiled.known(_sites.check_rows, x, index, sites)
  _compiled.known(_sites.check_different, sites, labels)
  _checks.one_of("norm", norm, Norm)
  ball_norm = norm if ball_norm is None else ball_norm
  _checks.one_of("ball_norm", ball_norm, Norm)
  _checks.count("neighbours", neighbours)
  _checks.count("sweeps", sweeps, 0)
  clean, known = flat(x), flat(sites)
  known = known.astype(clean.dtype)
  least, most = (side.reshape(clean.shape) for side in box(x, low, high))
  radius = radii(epsilon, index.shape, clean.dtype)
  check_radius(epsilon, low, high, x.shape, ball_norm)
  if nearest is None:
    nearest = distances.k_nearest(
      clean,
      known,
      k=min(neighbours, len(known)),
      norm=norm,
      exclude=index,
      apart=None if labels is None else (labels[index], labels),
      block_size=block_size,
    )
  _sites.check_neighbours(nearest, index, len(known))
  gaps = jnp.asarray(nearest.distances, clean.dtype)
  n = clean.shape[1]
  reach = jnp.max(gaps, axis=1, initial=0)  # inf where fewer sites are left
  horizon = jnp.where(len(known) - 1 <= gaps.shape[1], jnp.inf, reach)
  first = jnp.min(gaps, axis=1, initial=jnp.inf)
  span = jnp.asarray(high, clean.dtype) - jnp.asarray(low, clean.dtype)
  if span.ndim:  # otherwise a scalar, so that nothing is folded at compilation
    span = jnp.max(most - least, axis=1)
  widest = span * {"linf": 1, "l2": n**0.5, "l1": n}[ball_norm]
  towards = jnp.where(
    jnp.isinf(gaps)[..., None], 0, known[nearest.indices] - clean[:, None]
  )
  closest = _pace.nearest_size(gaps, towards, ball_norm) if ball_norm != norm else first
  cells = functools.partial(_sites.check_finite_cells, norm)
  _compiled.known(cells, epsilon, low, high, x, index, sites, labels)
  finite = jnp.minimum(closest, widest)
  count = towards.shape[1] if norm == "l2" else 0
  ball = attacks.Ball(ball_norm, radius, least, most, share)
  bound = 2 * _widening(norm, ball) * radius
  return VoronoiCells(
    ball,
    norm,
    jnp.where(jnp.isinf(radius), finite, radius),
    closest,
    _pace.reach(ball, clean, gaps),
    towards,
    _numerics.einsum("bkn,bln->bkl", towards[:, :count], towards[:, :count]),
    jnp.isfinite(gaps) & (gaps <= bound[:, None] * (1 + _clearance.OF_MOVE)),
    first,
    horizon,
    sweeps,
  )
