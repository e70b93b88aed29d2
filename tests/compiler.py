"""Compiler flags for programs that run a few times: tests and tutorials."""

import importlib.metadata

FLAGS = [
  "--xla_backend_optimization_level=0",
  "--xla_llvm_disable_expensive_passes=true",
  "--xla_cpu_parallel_codegen_split_count=1",
]
# Halves compilation. An unknown flag ends the process, so for tested versions only.
if importlib.metadata.version("jaxlib") in ("0.7.2", "0.10.2"):
  FLAGS.append("--xla_cpu_use_fusion_emitters=false")
