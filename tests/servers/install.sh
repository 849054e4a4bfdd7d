# The common part of the scripts of this folder: programs of other projects, installed once below the cache. The
# script sets `name`.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/truce-servers
PYMONGO=4.20.0

skip() {
    echo "skipped: $name: $*"
    exit 77
}

# Runs `FUNCTION DIRECTORY` once for all concurrent callers; `made` is the directory then.
once() { # DIRECTORY FUNCTION
    made=$1
    mkdir -p "$cache" || skip "the cache $cache cannot be made"
    exec 9>"$1.lock"
    flock 9
    if [ ! -e "$1/ready" ]; then
        rm -rf "$1"
        mkdir -p "$1"
        "$2" "$1" >"$1.log" 2>&1 || skip "$name cannot be installed: $(grep -v '^$' "$1.log" | tail -1)"
        touch "$1/ready"
    fi
    flock -u 9
    exec 9>&-
}

need_python() {
    python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        skip "Python 3.10 with venv is not installed"
}

# What clients/go and its tests need, in $made/cache: one folder for all scripts, because the go command stores the path with
# what it compiled.
OTEL_SDK=go.opentelemetry.io/otel/sdk@v1.40.0
clients_go=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../clients/go" && pwd)
make_go_driver() {
    export GOMODCACHE=$1/cache GOFLAGS=-mod=mod
    mkdir "$1/otel" && cp "$clients_go"/go.{mod,sum} "$1" && cp "$clients_go"/truceotel/go.{mod,sum} "$1/otel" &&
        (cd "$1" && go mod download) && cd "$1/otel" &&
        go mod edit -droprequire truce.invalid/truce -dropreplace truce.invalid/truce && go get "$OTEL_SDK" &&
        printf 'package otel\nimport _ "%s/trace/tracetest"\n' "${OTEL_SDK%@*}" >otel.go && go build -mod=mod ./... && go mod download
}
once_go_driver() { once "$cache/module-go-2-$(cat "$clients_go"/{,truceotel/}go.{mod,sum} | cksum | tr ' ' -)" make_go_driver; }
