"""Recurrent layers, which cuDNN computes, and their cells, which are one kernel each."""

from __future__ import annotations

from fakegpu_lab.driver.cost.op_row import family
from fakegpu_lab.driver.ops.recurrent import cudnn_rnn, values
from fakegpu_lab.hardware.time import host_costs

row = family(host_costs.RECURRENT)

row("_cudnn_rnn", runs=cudnn_rnn.forward)
row("_cudnn_rnn_backward", runs=cudnn_rnn.backward)
row("_cudnn_rnn_flatten_weight", runs=cudnn_rnn.flatten)
for _name, _mode in cudnn_rnn.MODES.items():
    row(_name, runs=cudnn_rnn.by_name(_mode))
row("_thnn_fused_lstm_cell", runs=values.lstm)
row("_thnn_fused_lstm_cell_backward_impl", runs=values.lstm_backward)
row("_thnn_fused_gru_cell", runs=values.gru)
row("_thnn_fused_gru_cell_backward", runs=values.gru_backward)
