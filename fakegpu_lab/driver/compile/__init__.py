"""TorchScript, torch.export and torch.compile with device tensors. Start with `torch_compile`.

`dynamo` prepares what captures a program, `inductor` what makes kernels of it, and `cuda_graphs` captures and replays
them; `compilations` notes what was compiled; `triton_version` says whether there is a Triton to compile with. `export`
has FakeTensors and higher-order operators, `torchscript` moving and loading. May import `driver.graphs`,
`driver.dispatch`, `driver.recorder` and everything below them.
"""
