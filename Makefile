# Makefile - build, test and install libfleet. `make help` lists the targets.
#
# Everything made goes to build/ (objects), lib/ and bin/. A variant is the same
# rules with another BUILD folder and other flags: see asan, tsan, clang.

CC       ?= gcc
AR       ?= ar
OPT      ?= -O2 -g
BUILD    ?= build/release
LIBDIR   ?= lib
BINDIR   ?= bin
PREFIX   ?= /usr/local
DESTDIR  ?=
VARIANT  ?=# extra compiler flags of a variant (sanitizers)
VARIANT_LD ?= $(VARIANT)

VERSION  := $(shell sed -n 's/^.define FLEET_VERSION_[A-Z]* *//p' \
              include/fleet/base.h | paste -sd.)
SOMAJOR  := $(firstword $(subst ., ,$(VERSION)))

# V=1 shows the commands
Q        := $(if $(V),,@)

WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes \
            -Wmissing-declarations $(if $(WERROR),-Werror)
# contraction off: a fused multiply-add in one build and none in another would
# give other bits (docs/adr/0004)
CFLAGS_  := -std=gnu17 -Iinclude -Isrc -fPIC -fvisibility=hidden -pthread \
            -ffp-contract=off -fno-math-errno $(WARN) $(OPT) $(VARIANT) $(CFLAGS)
LIBS     := -lcjson -lxxhash -ldnnl -lgomp -lz -lm -lpthread
LDFLAGS_ := -pthread $(VARIANT_LD) $(LDFLAGS)

# --- sources ----------------------------------------------------------------
# FILE_simd.c is compiled once per instruction set; a table made at run time
# from cpuid picks one.
SRC      := $(filter-out %_simd.c,$(wildcard src/*/*.c))
SIMD     := $(wildcard src/*/*_simd.c)
ISAS     := plain avx2 avx512
ISA_plain  := -DFL_ISA=0
ISA_avx2   := -DFL_ISA=256 -mavx2 -mfma
ISA_avx512 := -DFL_ISA=512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 \
              -mfma -mprefer-vector-width=512
ifneq ($(shell uname -m),x86_64)
ISAS     := plain
endif

OBJ      := $(SRC:%.c=$(BUILD)/%.o) \
            $(foreach isa,$(ISAS),$(SIMD:%.c=$(BUILD)/%.$(isa).o))
TOOLS    := $(wildcard tools/*.c)
SAMPLES  := $(wildcard samples/*.c)
TESTS    := $(wildcard test/*.c)
BENCHES  := $(wildcard bench/*.c)
PROGRAMS := $(TOOLS:tools/%.c=$(BINDIR)/%) $(SAMPLES:samples/%.c=$(BINDIR)/%)

.PHONY: all
all: lib programs

.PHONY: lib programs
lib: $(LIBDIR)/libfleet.so $(LIBDIR)/libfleet.a
programs: $(PROGRAMS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(CFLAGS_) -MMD -MP -c $< -o $@

define simd_rule
$$(BUILD)/%_simd.$(1).o: %_simd.c
	@mkdir -p $$(@D)
	@echo "  CC    $$@"
	$$(Q)$$(CC) $$(CFLAGS_) -O3 $$(ISA_$(1)) -MMD -MP -c $$< -o $$@
endef
$(foreach isa,$(ISAS),$(eval $(call simd_rule,$(isa))))

$(LIBDIR)/libfleet.so: $(OBJ)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) -shared -Wl,-soname,libfleet.so.$(SOMAJOR) -Wl,--no-undefined \
	    -Wl,-z,now $(LDFLAGS_) -o $@.$(VERSION) $(OBJ) $(LIBS)
	$(Q)ln -sf libfleet.so.$(VERSION) $@.$(SOMAJOR)
	$(Q)ln -sf libfleet.so.$(VERSION) $@

# One object whose hidden symbols are local: a host that links the archive sees
# fleet_ names and no others.
$(LIBDIR)/libfleet.a: $(OBJ)
	@mkdir -p $(@D)
	@echo "  AR    $@"
	$(Q)ld -r -o $(BUILD)/libfleet.o $(OBJ)
	$(Q)objcopy --localize-hidden $(BUILD)/libfleet.o
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $(BUILD)/libfleet.o

$(BINDIR)/%: $(BUILD)/tools/%.o $(LIBDIR)/libfleet.so
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $< -L$(LIBDIR) -lfleet \
	    -Wl,-rpath,'$$ORIGIN/../$(notdir $(LIBDIR))' -lm
$(BINDIR)/%: $(BUILD)/samples/%.o $(LIBDIR)/libfleet.so
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $< -L$(LIBDIR) -lfleet \
	    -Wl,-rpath,'$$ORIGIN/../$(notdir $(LIBDIR))' -lm

# --- tests ------------------------------------------------------------------
# All of test/*.c in one program, linked with the library's objects so that the
# inside can be tested too.
TEST_OBJ := $(TESTS:%.c=$(BUILD)/%.o)
TEST_LIBS ?= -lcriterion

$(BUILD)/fleet-tests: $(TEST_OBJ) $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS) $(TEST_LIBS)

-include $(wildcard $(BUILD)/*/*.d $(BUILD)/*/*/*.d)
