# Weir: `make help` lists the targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:

BUILD := build
BIN := .venv/bin
KERNEL := $(shell uname -r)
ARCH := $(subst x86_64,x86,$(subst aarch64,arm64,$(shell uname -m)))

BPF_FOLDERS := openflow_ext/bpf mininet_topos transports bench
BPF_SOURCES := $(wildcard $(addsuffix /*.bpf.c,$(BPF_FOLDERS)))
BPF_OBJECTS := $(addprefix $(BUILD)/,$(notdir $(BPF_SOURCES:.c=.o)))
BPF_HEADERS := $(wildcard openflow_ext/bpf/*.h transports/*.h)
BPF_CFLAGS := -O2 -g -target bpf -mcpu=v3 -D__TARGET_ARCH_$(ARCH) -Wall -Werror -I $(BUILD) -I openflow_ext/bpf
PROGRAMS := $(patsubst mininet_topos/%.c,$(BUILD)/weir-%,$(filter-out %.bpf.c,$(wildcard mininet_topos/*.c)))

.PHONY: help demo test setup bpf check unit clean root

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: root setup bpf ## set up, then one incast under plain TCP, SDTCP and SCCP (as root, 3 minutes)
	$(BIN)/weir lab demo

test: setup bpf check ## set up, then every test that this machine allows
	$(BIN)/pytest

setup: ## system packages, .venv, Open vSwitch; asks nothing, quick when done
	@tools/setup.sh

bpf: $(BPF_OBJECTS) $(PROGRAMS) ## the BPF programs and C programs, into build/

check: ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: ## the unit tests alone: no root, seconds
	$(BIN)/pytest tests/unit

clean: ## remove build/ and .venv
	rm -rf $(BUILD) .venv weir.egg-info

root:
	@[ "$$(id -u)" -eq 0 ] || { echo "this needs root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

# vmlinux.h is the running kernel's; the stamp is named for it.
$(BUILD)/kernel-$(KERNEL):
	@mkdir -p $(BUILD) && rm -f $(BUILD)/kernel-* && touch $@

$(BUILD)/vmlinux.h: $(BUILD)/kernel-$(KERNEL)
	@[ -r /sys/kernel/btf/vmlinux ] || { echo "no BTF: the kernel must have CONFIG_DEBUG_INFO_BTF" >&2; exit 1; }
	@tool=$$(tools/bpftool.sh) && $$tool btf dump file /sys/kernel/btf/vmlinux format c >$@

vpath %.bpf.c $(BPF_FOLDERS)
$(BUILD)/%.bpf.o: %.bpf.c $(BPF_HEADERS) $(BUILD)/vmlinux.h
	clang $(BPF_CFLAGS) -c $< -o $@

$(BUILD)/weir-%: mininet_topos/%.c $(wildcard mininet_topos/*.h)
	@mkdir -p $(BUILD)
	cc -O2 -g -Wall -Wextra -Werror -pthread $< -o $@
