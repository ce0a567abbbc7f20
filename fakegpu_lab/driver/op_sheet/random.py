"""Ops that draw random numbers, with the numbers of CUDA's kernels."""

from __future__ import annotations

from fakegpu_lab.driver.asserts import failing_threads as threads
from fakegpu_lab.driver.copies import hidden_waits
from fakegpu_lab.driver.cost.estimators import writing
from fakegpu_lab.driver.cost.op_row import Assert, row
from fakegpu_lab.driver.placement import rules
from fakegpu_lab.driver.random import distributions, dropout, sampling

row("uniform_", cost=writing, draws=distributions.fills(distributions.uniform_))
row("normal_", cost=writing, draws=distributions.fills(distributions.normal_))
row("random_", cost=writing, draws=distributions.fills(distributions.random_))
row("exponential_", cost=writing, draws=distributions.fills(distributions.exponential_))
row("log_normal_", cost=writing, draws=distributions.fills(distributions.log_normal_))
row("geometric_", cost=writing, draws=distributions.fills(distributions.geometric_))
row("cauchy_", cost=writing, draws=distributions.fills(distributions.cauchy_))
row("rand_like", "randn_like", "randint_like", cost=writing)
row("normal", binding=False, waits=hidden_waits.normal)
for _overload in ("Tensor_float", "float_Tensor", "Tensor_Tensor"):
    row(f"normal.{_overload}", draws=sampling.normal_by_tensors)
row("randperm", draws=sampling.randperm)

_BERNOULLI = {"asserts": Assert("Expected p_in >= 0", threads.bernoulli), "devices": rules.any_device}
row("bernoulli", **_BERNOULLI)
row("bernoulli.out", draws=sampling.bernoulli_out)
row("bernoulli_", **_BERNOULLI, cost=writing)
row("bernoulli_.float", draws=distributions.fills(distributions.bernoulli_))
row("bernoulli_.Tensor", draws=sampling.bernoulli_by_tensor)
row("multinomial", draws=sampling.multinomial, asserts=Assert("probabilit", threads.multinomial))

row("native_dropout", draws=dropout.native_dropout, grows=False)
row("native_dropout_backward", grows=False)
row("_fused_dropout", draws=dropout.fused_dropout)
row("rrelu_with_noise", draws=sampling.rrelu_with_noise)

# The CPU computes these from a seed that follows from the generator's state.
row("poisson", offset=20)
row("binomial", offset=42)
row("_standard_gamma", "_sample_dirichlet", offset=10)
