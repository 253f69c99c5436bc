"""Ask a running server about handwritten digits that the model has never seen."""

import argparse

from dataset import train_and_held_out

from clients import Client


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--count", type=int, default=8, help="how many images to send (default: 8)")
    options = parser.parse_args(arguments)

    _, held_out = train_and_held_out()
    client = Client(options.url)
    for image, digit in zip(held_out.images[: options.count], held_out.digits, strict=False):
        reply = client.predict("digits", image=image)
        probability = reply["probabilities"].max()
        print(f"predicted {reply['digit']} ({probability:.1%} sure), truth {digit}")


if __name__ == "__main__":
    main()
