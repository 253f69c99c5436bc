"""Ask a running server which language some sentences are in."""

import argparse

from clients import Client

SENTENCES = (
    ("en", "The library closes at half past six on Fridays."),
    ("de", "Die Bibliothek schließt freitags um halb sieben."),
    ("fr", "La bibliothèque ferme à six heures et demie le vendredi."),
    ("es", "La biblioteca cierra los viernes a las seis y media."),
    ("it", "La biblioteca chiude alle sei e mezza il venerdì."),
    ("pt", "A biblioteca fecha às seis e meia nas sextas-feiras."),
    ("nl", "De bibliotheek sluit op vrijdag om half zeven."),
    ("sv", "Biblioteket stänger halv sju på fredagar."),
    ("fi", "Kirjasto suljetaan perjantaisin puoli seitsemältä."),
    ("pl", "Biblioteka jest zamykana w piątki o wpół do siódmej."),
    ("tr", "Kütüphane cuma günleri altı buçukta kapanıyor."),
    ("ru", "По пятницам библиотека закрывается в половине седьмого."),
    ("uk", "У п'ятницю бібліотека зачиняється о пів на сьому."),
    ("el", "Η βιβλιοθήκη κλείνει στις έξι και μισή την Παρασκευή."),
    ("ar", "تغلق المكتبة أبوابها يوم الجمعة في السادسة والنصف"),
    ("ko", "도서관은 금요일에 여섯 시 반에 문을 닫습니다"),
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", nargs="*", help="your own texts (default: a sentence in each language)")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    options = parser.parse_args(arguments)

    client = Client(options.url)
    for truth, text in [(None, text) for text in options.text] or SENTENCES:
        reply = client.predict("language", text=text)
        probability = reply["probabilities"].max()
        expected = f", truth {truth}" if truth else ""
        print(f"predicted {reply['language']} ({probability:.1%} sure){expected}: {text}")


if __name__ == "__main__":
    main()
