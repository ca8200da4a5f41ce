"""A recurrent language model in the style of PyTorch's word_language_model: --cuda, repackaged hidden state, pickles of
the whole model that are loaded without map_location, flatten_parameters, generation with a seeded generator."""

import argparse
import math
import os
import tempfile

import torch
from torch import nn


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, 2, dropout=0.1)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid = nhid
        self.drop = nn.Dropout(0.1)

    def forward(self, input, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(input)), hidden)
        return torch.log_softmax(self.decoder(self.drop(output)).view(-1, self.decoder.out_features), dim=1), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(2, bsz, self.nhid), weight.new_zeros(2, bsz, self.nhid))


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


def batchify(data, bsz, device):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(1111)
    if torch.cuda.is_available() and not args.cuda:
        print("WARNING: You have a CUDA device, so you should probably run with --cuda.")
    device = torch.device("cuda") if args.cuda else torch.device("cpu")
    data = batchify(torch.arange(400) % 7, 4, device)
    model = RNNModel(7, 16, 16).to(device)
    criterion = nn.NLLLoss()
    bptt, lr = 10, 5.0

    def evaluate(model):
        model.eval()
        hidden, total = model.init_hidden(4), 0.0
        with torch.no_grad():
            for i in range(0, 90, bptt):
                output, hidden = model(data[i : i + bptt], hidden)
                total += criterion(output, data[i + 1 : i + 1 + bptt].view(-1)).item()
        return total / 9

    before = evaluate(model)
    for _epoch in range(args.epochs):
        model.train()
        hidden = model.init_hidden(4)
        for i in range(0, 90, bptt):
            model.zero_grad()
            hidden = repackage_hidden(hidden)
            output, hidden = model(data[i : i + bptt], hidden)
            loss = criterion(output, data[i + 1 : i + 1 + bptt].view(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-lr)
    after = evaluate(model)
    assert after < before, (before, after)

    path = os.path.join(tempfile.mkdtemp(), "model.pt")
    with open(path, "wb") as f:
        torch.save(model, f)
    with open(path, "rb") as f:
        model = torch.load(f, weights_only=False)
        model.rnn.flatten_parameters()
    again = evaluate(model)
    assert math.isclose(again, after, rel_tol=1e-5), (again, after)

    generator = torch.Generator(device=device).manual_seed(4)
    word = torch.randint(7, (1, 1), generator=generator, device=device)
    hidden = model.init_hidden(1)
    words = []
    with torch.no_grad():
        for _ in range(5):
            output, hidden = model(word, hidden)
            word.fill_(torch.multinomial(output.squeeze().exp().cpu(), 1)[0])
            words.append(word.item())
    print("loss", before, "->", after, words, word.device)


if __name__ == "__main__":
    main()
