"""Training: state, steps over all devices, checkpoints, the loop and sweeps."""

from spherejax import _compiled, _names
from spherejax.training._assignment import reassign as reassign
from spherejax.training._ccp import CCPState as CCPState
from spherejax.training._ccp import CCPTurn as CCPTurn
from spherejax.training._ccp import ccp_observe as ccp_observe
from spherejax.training._ccp import ccp_projection as ccp_projection
from spherejax.training._ccp_response import ccp_fresh_moments as ccp_fresh_moments
from spherejax.training._ccp_response import ccp_response as ccp_response
from spherejax.training._ccp_response import ccp_state as ccp_state
from spherejax.training._cells import factorial as factorial
from spherejax.training._cells import grid as grid
from spherejax.training._checkpoints import Checkpoints as Checkpoints
from spherejax.training._checkpoints import Restored as Restored
from spherejax.training._collectives import gather as gather
from spherejax.training._collectives import global_mean as global_mean
from spherejax.training._features import keep_features as keep_features
from spherejax.training._loop import FitResult as FitResult
from spherejax.training._loop import fit as fit
from spherejax.training._monitor import Monitor as Monitor
from spherejax.training._parallel import AXIS_NAME as AXIS_NAME
from spherejax.training._parallel import pad_rows as pad_rows
from spherejax.training._parallel import parallel_map as parallel_map
from spherejax.training._parallel import parallel_step as parallel_step
from spherejax.training._parallel import process_rows as process_rows
from spherejax.training._parallel import replicate as replicate
from spherejax.training._parallel import shard as shard
from spherejax.training._parallel import start_processes as start_processes
from spherejax.training._parallel import unreplicate as unreplicate
from spherejax.training._probe import LinearProbe as LinearProbe
from spherejax.training._probe import linear_probe as linear_probe
from spherejax.training._state import TrainState as TrainState
from spherejax.training._state import create_state as create_state
from spherejax.training._state import optimizer as optimizer
from spherejax.training._step import Outcome as Outcome
from spherejax.training._step import make_step as make_step
from spherejax.training._sweep import SweepResult as SweepResult
from spherejax.training._sweep import sweep as sweep
from spherejax.training._when import when as when

__all__ = [
  "AXIS_NAME",
  "CCPState",
  "CCPTurn",
  "Checkpoints",
  "FitResult",
  "LinearProbe",
  "Monitor",
  "Outcome",
  "Restored",
  "SweepResult",
  "TrainState",
  "ccp_fresh_moments",
  "ccp_observe",
  "ccp_projection",
  "ccp_response",
  "ccp_state",
  "create_state",
  "factorial",
  "fit",
  "gather",
  "global_mean",
  "grid",
  "keep_features",
  "linear_probe",
  "make_step",
  "optimizer",
  "pad_rows",
  "parallel_map",
  "parallel_step",
  "process_rows",
  "reassign",
  "replicate",
  "shard",
  "start_processes",
  "sweep",
  "unreplicate",
  "when",
]

_compiled.room(__name__, host=("ccp_fresh_moments", "ccp_observe", "ccp_state"))
_names.suggest(__name__)
