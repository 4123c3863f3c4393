#!/usr/bin/env python3
"""Makes the archive that is shipped.

    packaging/archive.py BINARY DIRECTORY

writes DIRECTORY/lobster-VERSION-TARGET.tar.gz and its SHA-256 beside it. In it are the
binary, the ready steps, man pages, completions for shells, the licences of lobster and of everything that
is built in, a bill of materials (CycloneDX), and a checksum of each file. The same binary
and sources give the same archive. Needs cargo, for what is built in.
"""
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = "lobster-cli"
LICENCE_FILES = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense|copyright)")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    binary, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    target = said(["rustc", "-vV"]).split("host: ")[1].split("\n")[0]
    metadata = json.loads(said(["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]))
    packages = built_in(metadata)
    version = next(package["version"] for package in packages if package["name"] == PROGRAM)
    crates = [package for package in packages if package["source"]]
    name = f"lobster-{version}-{target}"

    files = {"lobster": binary.read_bytes()}
    for licence in sorted(ROOT.glob("LICENSE*")):
        files[licence.name] = licence.read_bytes()
    files["CHANGELOG.md"] = (ROOT / "CHANGELOG.md").read_bytes()
    files["THIRD-PARTY-LICENSES.txt"] = licences(crates).encode()
    files["sbom.cdx.json"] = bill_of_materials(version, crates).encode()
    with tempfile.TemporaryDirectory() as pages:
        said([str(binary), "man", pages])
        for page in sorted(pathlib.Path(pages).iterdir()):
            files[f"man/man1/{page.name}"] = page.read_bytes()
    for step in sorted((ROOT / "guest-steps/dist").glob("*.wasm")):
        files[f"share/lobster/steps/{step.name}"] = step.read_bytes()
    for shell in ("bash", "zsh", "fish"):
        files[f"completions/{shell}"] = said([str(binary), "completions", shell]).encode()
    sums = "".join(f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files))
    files["SHA256SUMS"] = sums.encode()

    out.mkdir(parents=True, exist_ok=True)
    archive = out / f"{name}.tar.gz"
    archive.write_bytes(packed(name, files))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (out / f"{name}.tar.gz.sha256").write_text(f"{digest}  {name}.tar.gz\n")
    print(archive)


def said(command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def built_in(metadata):
    """The packages that the program is built of: no tests, no build scripts."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    left = [id for id, package in packages.items() if package["name"] == PROGRAM]
    found = set()
    while left:
        id = left.pop()
        if id in found:
            continue
        found.add(id)
        for dependency in nodes[id]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                left.append(dependency["pkg"])
    return sorted((packages[id] for id in found), key=lambda package: (package["name"], package["version"]))


def licences(crates):
    """The licence texts of all crates, each text once."""
    texts = {}
    for crate in crates:
        folder = pathlib.Path(crate["manifest_path"]).parent
        own = [path for path in sorted(folder.iterdir()) if path.is_file() and LICENCE_FILES.match(path.name)]
        shown = [path.read_text("utf-8", "replace").strip() for path in own]
        for text in shown or [f"The package brings no text of its licence: {crate['license']}."]:
            texts.setdefault(text, []).append(f"{crate['name']} {crate['version']} ({crate['license']})")
    rule = "\n\n" + "-" * 80 + "\n\n"
    return rule.join(", ".join(names) + ":\n\n" + text for text, names in texts.items()) + "\n"


def bill_of_materials(version, crates):
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text("utf-8"))["package"]
    sums = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    components = []
    for crate in crates:
        component = {
            "type": "library",
            "name": crate["name"],
            "version": crate["version"],
            "purl": f"pkg:cargo/{crate['name']}@{crate['version']}",
            "licenses": [{"expression": (crate["license"] or "").replace("/", " OR ")}],
        }
        if checksum := sums.get((crate["name"], crate["version"])):
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "lobster", "version": version}},
        "components": components,
    }
    return json.dumps(bill, indent=2) + "\n"


def packed(name, files):
    bytes = io.BytesIO()
    with gzip.GzipFile(fileobj=bytes, mode="wb", mtime=0) as zipped:
        with tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for path in sorted(files):
                entry = tarfile.TarInfo(f"{name}/{path}")
                entry.size = len(files[path])
                entry.mode = 0o755 if path == "lobster" else 0o644
                entry.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", 0))
                archive.addfile(entry, io.BytesIO(files[path]))
    return bytes.getvalue()


if __name__ == "__main__":
    main()
