# The front door. Everything below is a thin face on the CMake presets (CMakePresets.json).
PRESET ?= release
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)

.PHONY: all dev demo test bench install clean deps
all: deps build-$(PRESET)

deps:
	@tools/install-deps

build-%:
	@test -f build/$*/CMakeCache.txt || cmake --preset $* >build/$*.log 2>&1 || { mkdir -p build; cmake --preset $*; }
	@cmake --build build/$* -j $(JOBS)

clean:
	rm -rf build
