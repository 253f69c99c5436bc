"""Ask a running server to evaluate expressions, and compare with the exact values."""

import argparse

import numpy as np
from expression import evaluate, parse, random_expression, to_arrays, to_text

from clients import Client

EXPRESSIONS = (
    "7",
    "[MAX 2 9 [MIN 4 7] 0]",
    "[SM 8 5 [MED 1 6 3]]",
    "[MIN [SM 9 9] [MAX 3 [MED 2 4 4 8]] 9]",
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("expression", nargs="*", help="your own expressions (default: some of each depth)")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    options = parser.parse_args(arguments)

    generator = np.random.default_rng()
    drawn = [to_text(random_expression(generator, nesting)) for nesting in (1, 2, 3, 4)]
    client = Client(options.url)
    for text in options.expression or [*EXPRESSIONS, *drawn]:
        expression = parse(text)
        symbols, children = to_arrays(expression)
        reply = client.predict("listops", symbols=symbols, children=children)
        probability = reply["probabilities"].max()
        print(f"predicted {reply['value']} ({probability:.1%} sure), truth {evaluate(expression)}: {text}")


if __name__ == "__main__":
    main()
