#!/usr/bin/env bash
# Makes the packages and static archives for amd64 and arm64 in bin/packages, from a git checkout with Go. The same
# commit gives the same files, to the byte.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."

nfpm=(go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4)
sbom=(go run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0)
out=bin/packages
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
MTIME=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
commit=$(git describe --tags --always --dirty)
# A tag is the version. Without one it sorts before every version, by the date of the commit.
VERSION=$(git describe --tags --exact-match 2>/dev/null | sed 's/^v//' || true)
VERSION=${VERSION:-0~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).$commit}
VERSION=${VERSION//-/+}
export SOURCE_DATE_EPOCH CGO_ENABLED=0

rm -rf "$out"
mkdir -p "$out"
build() { GOARCH=$1 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$commit" -o "$2" ./cmd/treadle; }
gz() { gzip -9n >"$1"; }

own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
build "$(go env GOHOSTARCH)" "$own/treadle"
for ARCH in amd64 arm64; do
	name=treadle-$VERSION-linux-$ARCH
	DIR=$own/$name
	mkdir "$DIR"
	build "$ARCH" "$DIR/treadle"
	cp LICENSE README.md "$DIR"
	"${sbom[@]}" bin -json -noserial "$DIR/treadle" | grep -v '^ *"timestamp":' >"$out/$name.sbom.json"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$own" -cf - "$name" | gz "$out/$name.tar.gz"
	"$own/treadle" print man | gz "$DIR/treadle.1.gz"
	for shell in bash zsh fish; do "$own/treadle" completion "$shell" >"$DIR/completion.$shell"; done
	printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: treadle\n\nFiles: *\nCopyright: 2026 the Treadle developers\nLicense: Apache-2.0\n On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n' >"$DIR/copyright"
	printf 'treadle (%s) unstable; urgency=medium\n\n  * See the history of the repository.\n\n -- The Treadle developers <maintainers@treadle.example>  %s\n' "$VERSION" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gz "$DIR/changelog.gz"
	sed "s|\${ARCH}|$ARCH|; s|\${VERSION}|$VERSION|; s|\${MTIME}|$MTIME|; s|\${DIR}|$DIR|" cmd/treadle/package/nfpm.yaml >"$own/nfpm.yaml"
	for kind in deb rpm; do "${nfpm[@]}" package --config "$own/nfpm.yaml" --packager "$kind" --target "$out/"; done
done
cd "$out"
sha256sum -- * >SHA256SUMS
ls -l
