"""A small causal language model: from dispatch (narrow, one short text) to matmul (wide, many)."""

import torch
from torch import Tensor, nn

from benchmarks.planted.loop import Knobs, Loop, planted_job


class LanguageModel(nn.Module):
    """Embedding, encoder layers under a causal mask, and a head."""

    def __init__(self, words: int, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 2, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens: Tensor) -> Tensor:
        scored: Tensor = self.head(self.body(self.embed(tokens), mask=self.mask))
        return scored


@planted_job(words=128, width=256, layers=2, length=64, batch=4)
def main(loop: Loop, args: Knobs) -> None:
    width, batch, length = loop.size(args.width, 4), loop.size(args.batch, 1), loop.size(args.length, 2)
    words = loop.size(args.words, 4)
    model = LanguageModel(words, width, args.layers, length).to(loop.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, words, (batch, length), device=loop.device)
    places = batch * length
    loop.works(
        flops=6 * places * (args.layers * (12 * width * width + 2 * length * width) + width * words),
        traffic_bytes=4 * (places * width * args.layers * 90 + 12 * width * width * args.layers * 23),
    )
    loop.train(
        optimizer, lambda: nn.functional.cross_entropy(model(tokens).reshape(-1, words), tokens.reshape(-1))
    )
