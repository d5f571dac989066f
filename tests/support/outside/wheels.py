"""Wheels of a few lines, made on the spot: nothing is fetched."""

import zipfile
from collections.abc import Mapping
from pathlib import Path


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """A wheel that installs these files into `site-packages`."""
    info = f"{name}-{version}.dist-info"
    held = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    held[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in [*held, f"{info}/RECORD"])
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for each, text in held.items():
            archive.writestr(each, text)
    return folder
