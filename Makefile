# Weir: `make help` lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

BUILD := build
BIN := .venv/bin
KERNEL := $(shell uname -r)
ARCH := $(subst x86_64,x86,$(subst aarch64,arm64,$(shell uname -m)))

NATIVE := mininet_topos/native
BPF_FOLDERS := openflow_ext/bpf $(NATIVE) transports bench
BPF_SOURCES := $(wildcard $(addsuffix /*.bpf.c,$(BPF_FOLDERS)))
BPF_OBJECTS := $(addprefix $(BUILD)/,$(notdir $(BPF_SOURCES:.c=.o)))
BPF_HEADERS := $(wildcard openflow_ext/bpf/*.h transports/*.h)
BPF_CFLAGS := -O2 -g -target bpf -mcpu=v3 -D__TARGET_ARCH_$(ARCH) -Wall -Werror -I $(BUILD) -I openflow_ext/bpf
NATIVE_CFLAGS := -O2 -g -Wall -Wextra -Werror -pthread
# Workers of pytest: one for each CPU, and one more that runs what uses the machine. A test that ends its worker
# ends the session.
WORKERS := --max-worker-restart 0 --maxprocesses 8 -n
RUST := dcudp/rust
RUST_SOURCES := $(wildcard $(RUST)/Cargo.* $(RUST)/*/Cargo.toml $(RUST)/*/src/*.rs $(RUST)/*/src/*/*.rs)
CARGO := CARGO_TARGET_DIR=$(BUILD)/cargo cargo
PROGRAMS := $(subst _,-,$(patsubst $(NATIVE)/%/main.c,$(BUILD)/weir-%,$(wildcard $(NATIVE)/*/main.c)))
# UDT is built if Debian's libudt-dev is installed.
PROGRAMS += $(if $(wildcard /usr/include/udt/udt.h),$(BUILD)/weir-traffic-udt)

.PHONY: help demo test setup bpf check docs unit clean root

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: root setup bpf ## run an incast under plain TCP and Weir's schemes (as root, 4 minutes)
	$(BIN)/weir lab demo

test: setup bpf check ## run every test that this machine allows (as root, 33 minutes)
	$(BIN)/pytest $(WORKERS) $(shell expr $$(nproc) + 1)

setup: ## install packages, .venv and Open vSwitch; quick if nothing is missing (PRODUCTION=1: no test tools)
	@tools/setup.sh $(if $(PRODUCTION),--production)

bpf: $(BPF_OBJECTS) $(PROGRAMS) $(BUILD)/libdcudp.so ## build the BPF programs, the C programs and DCUDP in build/

check: docs ## ruff, clang-format, mypy, documentation; rustfmt and clippy if they are installed
	$(BIN)/ruff check .
	git ls-files '*.c' '*.cpp' '*.h' | xargs $(BIN)/clang-format --dry-run --Werror
	$(BIN)/mypy
	! cargo fmt --version >/dev/null 2>&1 || cargo fmt --manifest-path $(RUST)/Cargo.toml --all --check
	! cargo clippy --version >/dev/null 2>&1 || \
		$(CARGO) clippy --manifest-path $(RUST)/Cargo.toml --locked --quiet --all-targets -- --deny warnings

docs: $(BUILD)/mermaid.tiny.js ## build the documentation in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

unit: $(BUILD)/mermaid.tiny.js ## run the unit tests (without root, 5 minutes)
	$(BIN)/pytest $(WORKERS) logical tests/unit

clean: ## remove build/ and .venv
	rm -rf $(BUILD) .venv site weir.egg-info

root:
	@[ "$$(id -u)" -eq 0 ] || { echo "this target needs root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

# vmlinux.h describes the running kernel, so a stamp with the kernel's name makes it again after a kernel update.
$(BUILD)/kernel-$(KERNEL):
	@mkdir -p $(BUILD) && rm -f $(BUILD)/kernel-* && touch $@

$(BUILD)/vmlinux.h: $(BUILD)/kernel-$(KERNEL)
	@[ -r /sys/kernel/btf/vmlinux ] || { echo "the kernel has no BTF: it must be built with CONFIG_DEBUG_INFO_BTF" >&2; exit 1; }
	@tool=$$(tools/bpftool.sh) && $$tool btf dump file /sys/kernel/btf/vmlinux format c >$@

$(BUILD)/mermaid.tiny.js: tools/mermaid.sh
	@tools/mermaid.sh $@

vpath %.bpf.c $(BPF_FOLDERS)
$(BUILD)/%.bpf.o: %.bpf.c $(BPF_HEADERS) $(BUILD)/vmlinux.h
	clang $(BPF_CFLAGS) -c $< -o $@

# A folder of mininet_topos/native is one program. The folder delay_line becomes the program weir-delay-line.
.SECONDEXPANSION:
$(BUILD)/weir-%: $$(wildcard $(NATIVE)/$$(subst -,_,$$*)/*.[ch])
	@mkdir -p $(BUILD)
	cc $(NATIVE_CFLAGS) $(sort $(filter %.c,$^)) -o $@

# The other transports of the lab's flows share the schedule and the records of weir-traffic.
TRAFFIC := $(NATIVE)/traffic
TRAFFIC_SHARED := $(addprefix $(TRAFFIC)/,events.c flows.c options.c records.c roles.c)
$(BUILD)/weir-traffic-dcudp: $(wildcard $(NATIVE)/traffic_dcudp/*.[ch] $(TRAFFIC)/*.h) $(TRAFFIC_SHARED) \
		dcudp/dcudp.h $(BUILD)/libdcudp.so
	cc $(NATIVE_CFLAGS) -I $(TRAFFIC) -I dcudp $(filter %.c,$^) -L $(BUILD) -ldcudp '-Wl,-rpath,$$ORIGIN' -o $@

$(BUILD)/weir-traffic-udt: $(wildcard $(NATIVE)/traffic_udt/*.* $(TRAFFIC)/*.h) $(TRAFFIC_SHARED)
	@mkdir -p $(BUILD)
	cc $(NATIVE_CFLAGS) -I $(TRAFFIC) $(filter %.c %.cpp,$^) -ludt -lstdc++ -o $@

# A process may have mapped the old library, so it is not written over: install removes it first.
$(BUILD)/libdcudp.so: $(RUST_SOURCES)
	@command -v cargo >/dev/null || { echo "cargo is missing: install it with 'make setup'" >&2; exit 1; }
	$(CARGO) build --manifest-path $(RUST)/Cargo.toml --locked --quiet --release --package dcudp-net
	install $(BUILD)/cargo/release/libdcudp.so $@
