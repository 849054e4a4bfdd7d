# The front door: a thin face on the CMake presets (CMakePresets.json).
#
#   make            build/release/truce, after installing what is missing; make DEPS=no installs nothing
#   make demo       the stories, each checked by itself
#   make test       everything that is checked: tools/test
#   make soak       the long forms of the tests: some hours
#   make bench      truce beside PostgreSQL, SQLite and Redis; make bench-quick in two minutes;
#                   make bench-growth: up to 10^7 documents; make bench-clients: the packages of the languages
#   make mutants    changes each guard of an invariant; the tests must fail
#   make docs       the documentation as a site: build/site/index.html; VERSIONS=FOLDER adds it to a site of versions
#   make install    to PREFIX (/usr/local), below DESTDIR if that is given; make uninstall takes it away
#   make packages   the packages of Debian and of the languages: dist/
PREFIX  ?= /usr/local
DESTDIR ?=
MAKEFLAGS += --no-print-directory
JOBS    ?= $(shell nproc)

.PHONY: all demo test test-clients docs soak bench bench-quick bench-growth bench-clients bench-deps mutants install packages clean deps
all: deps build-release

deps:
ifneq ($(DEPS),no)
	@tools/install-deps
endif

# build-dev, build-asan ...: one preset
build-%: deps
	@mkdir -p build
	@test -f build/$*/CMakeCache.txt || cmake --preset $* >build/$*.log || { cat build/$*.log; exit 1; }
	@cmake --build build/$* -j $(JOBS)

demo: build-release
	@build/release/truce demo

test:
	@tools/install-deps --test
	@tools/test

test-clients: build-dev
	@tests/clients/run

docs: build-release
	@tools/build-site build/release $(VERSIONS)

soak:
	@tools/install-deps --test
	@tools/soak

bench: bench-deps benchmarks
	@bench/run build/release

bench-quick: bench-deps benchmarks
	@bench/run --quick build/release

# 10^4, 10^6 and 10^7 documents: a quarter of an hour, 12 GB of disk
bench-growth: bench-deps benchmarks
	@bench/run --growth build/release

benchmarks: build-release
	@cmake --build build/release --target benchmarks -j $(JOBS)

bench-clients: benchmarks
	@bench/clients/run build/release

bench-deps:
	@tools/install-deps --bench

mutants:
	@tools/install-deps --test
	@tools/mutants

# after-install updates the cache of the dynamic linker, or reports a folder that the linker does not search.
install: build-release
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"
	@tools/after-install "$(DESTDIR)" "$(PREFIX)"

uninstall: build-release
	@tools/uninstall build/release "$(DESTDIR)" "$(PREFIX)"

packages: build-release build-package
	@if command -v dpkg-deb >/dev/null; then tools/package-debian build/package dist; \
	else echo "skipped: debian: dpkg-deb is not installed"; fi
	@for language in python node go; do tools/package-$$language build/release dist || exit 1; done

clean:
	rm -rf build
