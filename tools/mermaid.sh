#!/bin/bash
# Fetch the JavaScript that draws the diagrams of the documentation site, and check that it is the known file.
# usage: mermaid.sh FILE
set -euo pipefail
. "$(dirname "$0")/lib.sh"

PACKAGE=@mermaid-js/tiny@11.17.2
SHA256=7a644017d37f93c8359790884e6b67fb1f747c78eb20475952404bd87190a3f8

file=$(realpath -m "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fetch() {
    cd "$folder" && npm pack --silent "$PACKAGE" && tar -xzf ./*.tgz package/dist/mermaid.tiny.js &&
        sha256sum --check --status <<<"$SHA256  package/dist/mermaid.tiny.js"
}

step "Mermaid for the documentation site" "check that the npm registry can be reached" fetch
mkdir -p "$(dirname "$file")"
mv "$folder/package/dist/mermaid.tiny.js" "$file"
