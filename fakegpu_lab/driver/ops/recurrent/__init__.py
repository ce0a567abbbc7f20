"""LSTM, GRU and RNN on a device. Start with `cudnn_rnn`.

`cudnn_rnn` runs whole layers as cuDNN does, with one buffer of `weights`; `values` computes them on the host; `cells`
has the fused cells of `nn.LSTMCell` and `nn.GRUCell`.

May import what `driver.ops` may.
"""
