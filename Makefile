# Makefile - build, test and install libfleet. `make help` lists the targets.
#
# Everything made goes to build/ (objects), lib/ and bin/. A variant is the same
# rules with another BUILD folder and other flags: see asan, tsan, clang.

CC       ?= gcc
ifeq ($(origin CXX),default)
CXX      := $(if $(findstring clang,$(CC)),clang++,g++)
endif
AR       ?= ar
OPT      ?= -O2 -g
BUILD    ?= build/release
LIBDIR   ?= lib
# What is fetched once; another libzmq for make test-long.
CACHE    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/libfleet
ONNX     := $(or $(FLEET_ONNX),$(CACHE)/onnx-1.23)
PYARROW  := $(CACHE)/pyarrow-26.0
OTHER_ZMQ := $(or $(FLEET_ZMQ),$(CACHE)/libzmq-4.3.5)
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
LIBS      = -lcjson -lxxhash -lzmq -ldnnl -lgomp -lz $(PROTOBUF_C_LIBS) -lm -lpthread
LDFLAGS_ := -pthread $(VARIANT_LD) $(LDFLAGS)

# --- sources ----------------------------------------------------------------
# FILE_simd.c is compiled once per instruction set; a table made at run time
# from cpuid picks one.
# Plug-ins are made of these, which libfleet does not have: PLUGIN_SIDE, what
# stands for libfleet in a plug-in; COMM, what communicators of several ranks have
# in common, which the suite tries without MPI, too; what includes <mpi.h>; NCCL's,
# which the suite has, too.
PLUGIN_SIDE := src/runtime/device/plugin_side.c
COMM     := $(wildcard src/collective/comm_*.c src/collective/shm/*.c) \
              src/collective/reduce_kernels.c
COMM_SIMD := src/collective/reduce_kernels_simd.c
MPI_SRC  := $(wildcard src/collective/mpi/*.c)
# libsodium seals what ranks on GPUs say to each other; SODIUM=none does without.
SODIUM   ?= $(shell pkg-config --exists libsodium 2>/dev/null && echo libsodium)
SODIUM_LIBS := $(if $(filter-out none,$(SODIUM)),$(shell pkg-config --libs libsodium))
SEAL_NOT := $(if $(SODIUM_LIBS),%/rendezvous_seal_absent.c,%/rendezvous_seal.c)
# protobuf-c writes files of ONNX; PROTOBUF_C=none does without.
PROTOBUF_C ?= $(shell pkg-config --exists libprotobuf-c 2>/dev/null && \
              command -v protoc-c >/dev/null && echo libprotobuf-c)
PROTOBUF_C_LIBS := $(if $(filter-out none,$(PROTOBUF_C)),\
              $(strip $(shell pkg-config --libs libprotobuf-c)))
ONNX_NOT := $(if $(PROTOBUF_C_LIBS),%/onnx_write_absent.c,%/onnx_write.c)
NCCL_SRC := $(filter-out $(SEAL_NOT),\
              $(wildcard src/collective/nccl/*.c src/collective/rendezvous/*.c))
ALL_SRC  := $(shell find src -name '*.c' | LC_ALL=C sort)
SRC      := $(filter-out %_simd.c src/runtime/device/cuda/% src/data/arrow/% $(PLUGIN_SIDE) \
              $(COMM) $(MPI_SRC) $(NCCL_SRC) $(SEAL_NOT) $(ONNX_NOT),$(ALL_SRC))
SIMD     := $(filter-out $(COMM_SIMD),$(filter %_simd.c,$(ALL_SRC)))
ISAS     := plain avx2 avx512
ISA_plain  := -DFL_ISA=0
ISA_avx2   := -DFL_ISA=256 -mavx2 -mfma
ISA_avx512 := -DFL_ISA=512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 \
              -mfma -mprefer-vector-width=512
ifneq ($(shell uname -m),x86_64)
ISAS     := plain
endif

OBJ      := $(SRC:%.c=$(BUILD)/%.o) \
            $(foreach isa,$(ISAS),$(SIMD:%.c=$(BUILD)/%.$(isa).o)) \
            $(if $(PROTOBUF_C_LIBS),$(BUILD)/gen/onnx.pb-c.o)
COMM_OBJ := $(COMM:%.c=$(BUILD)/%.o) \
            $(foreach isa,$(ISAS),$(COMM_SIMD:%.c=$(BUILD)/%.$(isa).o))
NCCL_OBJ := $(NCCL_SRC:%.c=$(BUILD)/%.o)

# The plug-ins that can be built here.
MPI      := $(shell pkg-config --exists ompi-c 2>/dev/null && echo ompi-c)
MPI_CFLAGS := $(if $(MPI),$(patsubst -I%,-isystem %,\
              $(shell pkg-config --cflags $(MPI))))
MPI_LIBS := $(if $(MPI),$(shell pkg-config --libs $(MPI)))
# Apache Arrow, for the plug-in that reads Parquet; ARROW=none does without.
ARROW_AT := $(shell ARROW='$(ARROW)' CXX='$(firstword $(CXX))' \
              tools/arrow $(PYARROW)/pyarrow 2>/dev/null)
ARROW_LINE := $(if $(ARROW_AT),,no libfleet_arrow.so: $(shell ARROW='$(ARROW)' \
              CXX='$(firstword $(CXX))' tools/arrow $(PYARROW)/pyarrow 2>&1))
PLUGINS  := $(if $(MPI),libfleet_mpi.so) $(if $(ARROW_AT),libfleet_arrow.so)
TOOLS    := $(wildcard tools/*.c)
SAMPLES  := $(wildcard samples/*.c)
# In this order ThreadSanitizer runs them: last what has the fewest threads.
TESTS    := $(wildcard $(patsubst %,test/%/*.c,base net runtime data ps \
              collective fleet tools kit sim ops gpu))
BENCHES  := $(wildcard bench/*.c)
PROGRAMS := $(TOOLS:tools/%.c=$(BINDIR)/%) $(SAMPLES:samples/%.c=$(BINDIR)/%)

.PHONY: all help
all: lib programs plugins

help:
	@sed -n 's/^#: //p' $(firstword $(MAKEFILE_LIST))

#: make              the library and the programs, into lib/ and bin/
#: make demo         install what is missing, build, train on real data
#: make gallery      the pictures of docs/gallery.md, anew
#: make test         install what is missing, build, run the test suite
#: make test-long    what is too slow for every change
#: make soak         a job of FLEET_SOAK_SECONDS (1200) must not grow
#: make cuda         the CUDA plug-in, if nvcc is there, and no register spilled
#: make check        most of what CI runs: layers, both compilers, sanitizers
#: make asan|ubsan   the suite under AddressSanitizer and UBSan
#: make tsan         the suite under ThreadSanitizer
#: make valgrind     the suite under valgrind, in VALGRIND_PARTS
#: make onnx         fetch onnx and onnxruntime from PyPI, for tests
#: make arrow        fetch Apache Arrow, for the plug-in that reads Parquet
#: make onednn3      the suites that multiply, with oneDNN 3 from PyPI
#: make layers       which room may include which
#: make tidy         names, sizes and comments of the sources
#: make format       clang-format all sources
#: make fuzz         each fuzzer for FUZZ_SECONDS (60)
#: make bench        bench/run, all rows
#: make install      into DESTDIR/PREFIX

.SECONDARY: # objects stay, so that an installation compiles nothing
.PHONY: lib programs
lib: $(LIBDIR)/libfleet.so $(LIBDIR)/libfleet.a $(PLUGINS:%=$(LIBDIR)/%)
	@$(if $(MPI),:,echo "  --    no libfleet_mpi.so: Open MPI is not here \
	    (Debian: libopenmpi-dev openmpi-bin)")
	@$(if $(ARROW_AT),:,echo '  --    $(ARROW_LINE)')
	@$(if $(SODIUM_LIBS),:,echo "  --    no keys for ranks on GPUs: libsodium is \
	    not here (Debian: libsodium-dev)")
	@$(if $(PROTOBUF_C_LIBS),:,echo "  --    no files of ONNX: protobuf-c is not \
	    here (Debian: libprotobuf-c-dev protobuf-c-compiler)")
	@$(if $(LIBPNG_LIBS),:,echo "  --    no pictures of fleet-plot: libpng is not \
	    here (Debian: libpng-dev)")
programs: $(PROGRAMS)

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(CFLAGS_) -MMD -MP -c $< -o $@

$(MPI_SRC:%.c=$(BUILD)/%.o): CFLAGS_ += $(MPI_CFLAGS)

# The messages of ONNX's files, and of a benchmark, in C.
$(BUILD)/gen/onnx.pb-c.c: src/fleet/onnx/onnx.proto
$(BUILD)/gen/example.pb-c.c: bench/example.proto
$(BUILD)/gen/%.pb-c.c:
	@mkdir -p $(@D)
	@echo "  PROTO $@"
	$(Q)protoc-c --proto_path=$(<D) --c_out=$(@D) $<
$(BUILD)/gen/%.pb-c.o: $(BUILD)/gen/%.pb-c.c
	@echo "  CC    $@"
	$(Q)$(CC) $(CFLAGS_) -w -c $< -o $@
$(BUILD)/src/fleet/onnx/onnx_write.o: $(BUILD)/gen/onnx.pb-c.c
$(BUILD)/src/fleet/onnx/onnx_write.o: CFLAGS_ += -isystem $(BUILD)/gen

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

# A plug-in has what it needs of src/ inside, and links no symbol of libfleet.
# The suite finds that of its own variant beside itself.
$(BUILD)/libfleet_mpi.so: $(MPI_SRC:%.c=$(BUILD)/%.o) $(COMM_OBJ) \
              $(PLUGIN_SIDE:%.c=$(BUILD)/%.o) \
              $(BUILD)/src/collective/wire_type.o $(BUILD)/src/base/thread.o
	@echo "  LD    $@"
	$(Q)$(CC) -shared -Wl,--no-undefined -Wl,-z,now $(LDFLAGS_) -o $@ $^ \
	    $(MPI_LIBS)

# Arrow's headers are C++20 and throw; what its library is called has a number.
ARROW_SRC := $(wildcard src/data/arrow/*.cpp)
ARROW_LIBS := $(foreach l,parquet arrow,-l:$(notdir $(firstword \
              $(wildcard $(ARROW_AT)/lib$(l).so $(ARROW_AT)/lib$(l).so.*))))
# A file of one text, which is made anew only where the text is another one.
define write_if_other
	@mkdir -p $(@D)
	@echo "$(1)" >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
endef
# Dependencies do not have its headers: another Arrow is another file.
ARROW_IS := $(BUILD)/arrow.is
.PHONY: arrow-is
arrow-is:
$(ARROW_IS): arrow-is
	$(call write_if_other,$(ARROW_AT) $$(cd $(ARROW_AT) && ls libparquet.so*))
$(BUILD)/src/data/arrow/%.o: src/data/arrow/%.cpp $(ARROW_IS)
	@mkdir -p $(@D)
	@echo "  CXX   $@"
	$(Q)$(CXX) -std=gnu++20 -Iinclude -Isrc -isystem $(ARROW_AT)/include -fPIC \
	    -fvisibility=hidden -pthread $(filter-out -Wpedantic,$(CXX_WARN)) $(OPT) \
	    $(VARIANT) $(CXXFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/libfleet_arrow.so: $(ARROW_SRC:%.cpp=$(BUILD)/%.o) \
              $(BUILD)/src/data/arrow/arrow_entry.o $(PLUGIN_SIDE:%.c=$(BUILD)/%.o)
	@echo "  LD    $@"
	$(Q)$(CXX) -shared -Wl,--no-undefined -Wl,-z,now $(LDFLAGS_) -o $@ $^ \
	    -L$(ARROW_AT) $(ARROW_LIBS) \
	    -Wl,-rpath,'$$ORIGIN/fleet-arrow:$(abspath $(ARROW_AT))'
$(LIBDIR)/libfleet_%.so: $(BUILD)/libfleet_%.so
	@mkdir -p $(@D)
	$(Q)cp $< $@

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

# The suite tries the fleetrun, the fleet-train, the fleet-predict and the predict of its
# own variant, which lie beside it. The launcher needs no library when it runs.
RUN_OBJ  := $(patsubst %.c,$(BUILD)/%.o,tools/fleetrun.c \
              $(wildcard tools/fleetrun/*.c) \
              $(addprefix src/base/,clock.c error.c hash.c memory.c text.c thread.c) \
              $(addprefix src/net/,guard.c keys.c ledger.c limits.c own_address.c packet.c resolve.c \
                roster_link.c roster_message.c socket.c wakeup.c zmq_context.c))
$(BUILD)/fleetrun: $(RUN_OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ -lzmq -lxxhash
# It reads what is in logs by the library's own functions, which are hidden in it.
$(BUILD)/fleet-replay: $(BUILD)/tools/fleet-replay.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
# Alike of saves.
INSPECT_OBJ := $(patsubst %.c,$(BUILD)/%.o,tools/fleet-inspect.c \
              $(wildcard tools/fleet-inspect/*.c))
$(BUILD)/fleet-inspect: $(INSPECT_OBJ) $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
# libpng makes pictures of fleet-plot's; LIBPNG=none does without.
LIBPNG   ?= $(shell pkg-config --exists libpng 2>/dev/null && echo libpng)
LIBPNG_LIBS := $(if $(filter-out none,$(LIBPNG)),$(strip $(shell pkg-config --libs libpng)))
PLOT_NOT := $(if $(LIBPNG_LIBS),%/png_file_absent.c,%/png_file.c)
PLOT_OBJ := $(patsubst %.c,$(BUILD)/%.o,tools/fleet-plot.c \
              $(filter-out $(PLOT_NOT),$(wildcard tools/fleet-plot/*.c)))
$(BUILD)/fleet-plot: $(PLOT_OBJ) $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBPNG_LIBS) $(LIBS)
CTL_OBJ := $(patsubst %.c,$(BUILD)/%.o,tools/fleetctl.c \
              $(wildcard tools/fleetctl/*.c))
$(BUILD)/fleetctl: $(CTL_OBJ) $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
$(BUILD)/fleet-train: $(BUILD)/tools/fleet-train.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
$(BUILD)/fleet-predict: $(BUILD)/tools/fleet-predict.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
$(BUILD)/fleet-export: $(BUILD)/tools/fleet-export.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
$(BUILD)/predict $(BUILD)/score: $(BUILD)/%: $(BUILD)/samples/%.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
# Data from a seed: no model of the library's, but its random numbers.
DATAGEN_OBJ := $(patsubst %.c,$(BUILD)/%.o,tools/fleet-datagen.c \
              $(wildcard tools/fleet-datagen/*.c))
$(BUILD)/fleet-datagen: $(DATAGEN_OBJ) $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
$(BINDIR)/fleet-replay $(BINDIR)/fleet-inspect $(BINDIR)/fleet-datagen \
              $(BINDIR)/fleetctl $(BINDIR)/fleet-plot: \
              $(BINDIR)/%: $(BUILD)/%
	@mkdir -p $(@D)
	$(Q)cp $< $@
$(BINDIR)/fleetrun: $(BUILD)/fleetrun
	@mkdir -p $(@D)
	$(Q)cp $< $@

# --- the CUDA plug-in ---------------------------------------------------------
# Built where there is a nvcc of CUDA 12.8 or newer; CUDA_LINE says whether. It
# is the same for all variants. Contraction is off, as on the CPU: the rules of
# updates then have the same bits.
NVCC_PATH  := $(shell NVCC='$(NVCC)' tools/nvcc 2>/dev/null)
CUDA_LIB   := $(if $(NVCC_PATH),$(LIBDIR)/libfleet_cuda.so)
CUDA_LINE  := $(if $(NVCC_PATH),cuda: $(LIBDIR)/libfleet_cuda.so is built by \
                $(NVCC_PATH),cuda: no plug-in: $(shell NVCC='$(NVCC)' tools/nvcc 2>&1))
CUDA_BUILD := build/cuda
CUDA_SRC   := $(shell find src -name '*.cu' | LC_ALL=C sort)
CUDA_OBJ   := $(CUDA_SRC:%=$(CUDA_BUILD)/%.o)
CUDA_ARCHS ?= 80 90 100
NVCCFLAGS_ := -std=c++17 -O3 -Iinclude -Isrc -fmad=false -Werror all-warnings \
              $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
              -gencode arch=compute_100,code=compute_100 -Xptxas -v \
              -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-Wall,-Wextra \
              $(NVCCFLAGS)

.PHONY: plugins cuda
plugins: $(CUDA_LIB)
	@echo '$(CUDA_LINE)'
cuda: plugins
	@[ -z "$(CUDA_LIB)" ] || tools/spills $(CUDA_BUILD)

# Other GPUs are other objects.
CUDA_IS := $(CUDA_BUILD)/archs.is
.PHONY: cuda-is
cuda-is:
$(CUDA_IS): cuda-is
	$(call write_if_other,$(CUDA_ARCHS))
$(CUDA_BUILD)/%.o: % $(CUDA_IS)
	@mkdir -p $(@D)
	@echo "  NVCC  $@"
	$(Q)$(NVCC_PATH) $(NVCCFLAGS_) -MMD -MF $(@:.o=.d) -c $< -o $@ \
	    >$(@:.o=.log) 2>&1 || { cat $(@:.o=.log); exit 1; }
# cuda_entry.c is C, as ranks on GPUs are, and what plug-ins have in place of libfleet's
# parts comes with it.
CUDA_ENTRY := $(BUILD)/src/runtime/device/cuda/cuda_entry.o $(PLUGIN_SIDE:%.c=$(BUILD)/%.o) \
              $(NCCL_OBJ) $(patsubst %,$(BUILD)/src/collective/%.o,\
              comm_base comm_call comm_p2p wire_type) $(BUILD)/src/base/thread.o \
              $(BUILD)/src/net/wakeup.o
$(LIBDIR)/libfleet_cuda.so: $(CUDA_OBJ) $(CUDA_ENTRY)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(NVCC_PATH) -shared -o $@ $^ -lcublasLt $(SODIUM_LIBS) -Xlinker -z,now \
	    -Xlinker --exclude-libs=ALL \
	    -Xlinker -rpath,$(dir $(NVCC_PATH))../lib64

# How a real GPU fails; for test/gpu-run.
$(CUDA_BUILD)/gpu_faults: test/gpu-faults/gpu_faults.cu $(CUDA_LIB) $(LIBDIR)/libfleet.so
	@mkdir -p $(@D)
	@echo "  NVCC  $@"
	$(Q)$(NVCC_PATH) $(filter-out -Xptxas -v,$(NVCCFLAGS_)) -o $@ $< -L$(LIBDIR) -lfleet \
	    -Xlinker -rpath,'$$ORIGIN/../../$(LIBDIR)',-rpath,$(abspath $(LIBDIR))

# --- tests ------------------------------------------------------------------
# The rooms of test/ in one program, linked with the library's objects so that the
# inside can be tested too.
TEST_OBJ := $(TESTS:%.c=$(BUILD)/%.o)
TEST_INCLUDES := -Itest/kit -Itest/sim -Itest
$(BUILD)/test/%.o: CFLAGS_ += $(TEST_INCLUDES)

# Calls of each public function with NULL, made from the headers.
$(BUILD)/gen/null_calls.h: test/null-calls $(wildcard include/fleet/*.h)
	@mkdir -p $(@D)
	@test/null-calls $(filter %.h,$^) >$@.new && mv $@.new $@
$(BUILD)/test/fleet/null_calls_test.o: $(BUILD)/gen/null_calls.h
$(BUILD)/test/fleet/null_calls_test.o: CFLAGS_ += -I$(BUILD)/gen
TEST_LIBS ?= -lcriterion
SUITE    := $(BUILD)/fleet-tests

# Plug-ins that fit, and that do not (test/plugins): name, version; mute has no
# entry, orphan needs a library that is gone.
TWINS    := $(foreach t,twin later alias mute orphan,\
              $(BUILD)/plugins/libfleet_$(t).so)
TWIN_twin  := -DTWIN_VERSION=FL_PLUGIN_VERSION
TWIN_alias := $(TWIN_twin)
TWIN_later := -DTWIN_VERSION=99
$(filter-out %orphan.so,$(TWINS)): $(BUILD)/plugins/libfleet_%.so: \
              test/plugins/twin.c $(BUILD)/src/runtime/device/plugin_side.o
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS_) $(LDFLAGS_) -shared $(TWIN_$*) -o $@ $^
$(BUILD)/plugins/libfleet_orphan.so: $(BUILD)/src/runtime/device/plugin_side.o
	@mkdir -p $(@D)/gone
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -shared -o $(@D)/gone/libgone.so $^
	$(Q)$(CC) $(LDFLAGS_) -shared -Wl,--no-as-needed -o $@ $^ -L$(@D)/gone -lgone
	$(Q)rm -r $(@D)/gone

# The CUDA plug-in for the suite: the same sources, compiled for the host's
# processor against test/cuda-emu. What keeps the emulated threads is no business
# of ThreadSanitizer's.
EMU_SRC  := $(wildcard test/cuda-emu/*.cpp test/cuda-emu/*.cu)
EMU_OBJ  := $(CUDA_SRC:%=$(BUILD)/emu/%.o) $(EMU_SRC:%=$(BUILD)/emu/%.o)
CXX_WARN := $(filter-out -Wstrict-prototypes -Wmissing-declarations,$(WARN))
CXXFLAGS_ := -std=gnu++17 -Itest/cuda-emu -Iinclude -Isrc $(TEST_INCLUDES) -fPIC \
            -fvisibility=hidden -fno-exceptions -fno-rtti -pthread \
            -ffp-contract=off -fno-math-errno $(CXX_WARN) $(OPT)
# It is a plug-in, too, beside the suite, so that programs train on it.
EMU_PLUGIN := $(BUILD)/emu/libfleet_cuda.so
$(EMU_PLUGIN): $(EMU_OBJ) $(CUDA_ENTRY)
	@echo "  LD    $@"
	$(Q)$(CXX) -shared -Wl,-Bsymbolic $(LDFLAGS_) -o $@ $^ $(SODIUM_LIBS)

EMU_PLAIN := $(BUILD)/emu/test/cuda-emu/fiber.cpp.o \
            $(BUILD)/emu/test/cuda-emu/block.cpp.o

# NCCL for ranks without GPUs, which is opened as the real one is; one by which ranks
# can share a GPU; one that is too old, one that lacks a function, and one that is for other GPUs.
NCCLS    := $(foreach n,nccl nccl-new nccl-old nccl-less nccl-other,$(BUILD)/$(n)/libnccl.so.2)
$(BUILD)/nccl-new/libnccl.so.2: NCCL_AS := -DNCCL_EMU_VERSION=23007
$(BUILD)/nccl-old/libnccl.so.2: NCCL_AS := -DNCCL_EMU_VERSION=21212
$(BUILD)/nccl-less/libnccl.so.2: NCCL_AS := -DNCCL_EMU_LESS
$(BUILD)/nccl-other/libnccl.so.2: NCCL_AS := -DNCCL_EMU_STRANGER
$(NCCLS): test/nccl-emu/nccl.c $(wildcard test/nccl-emu/*.h)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(CFLAGS_) $(LDFLAGS_) -shared $(NCCL_AS) -o $@ $<

# What fleetrun does without sockets is tried without it.
NODE_OBJ := $(BUILD)/tools/fleetrun/node_table.o
$(SUITE): $(TEST_OBJ) $(OBJ) $(COMM_OBJ) $(NCCL_OBJ) $(EMU_OBJ) $(NODE_OBJ) | \
              $(BUILD)/fleetrun $(BUILD)/fleet-train $(BUILD)/predict \
              $(BUILD)/score \
              $(BUILD)/fleet-predict $(BUILD)/fleet-export \
              $(BUILD)/fleet-replay $(BUILD)/fleet-inspect \
              $(BUILD)/fleet-datagen $(BUILD)/fleetctl $(BUILD)/fleet-plot \
              $(PLUGINS:%=$(BUILD)/%) \
              $(BUILD)/mpi-rank $(TWINS) $(NCCLS) $(EMU_PLUGIN)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS_) -o $@ $^ $(LIBS) $(SODIUM_LIBS) $(TEST_LIBS)

# A rank that mpirun starts; it has the kit of the suite, and loads the plug-in.
$(BUILD)/mpi-rank: $(BUILD)/test/mpi-rank/mpi_rank.o $(BUILD)/test/kit/test.o \
              $(patsubst %.c,$(BUILD)/%.o,$(wildcard test/kit/comm_*.c)) \
              $(OBJ) $(COMM_OBJ)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS_) -o $@ $^ $(LIBS) $(TEST_LIBS)

$(EMU_PLAIN): private EMU_VARIANT = $(filter-out -fsanitize=thread,$(VARIANT)) -O2
$(BUILD)/emu/%.o: EMU_VARIANT = $(VARIANT)
$(BUILD)/emu/%.o: %
	@mkdir -p $(@D)
	@echo "  CXX   $@"
	$(Q)$(CXX) $(CXXFLAGS_) $(EMU_VARIANT) -MMD -MP -x c++ -c $< -o $@

# where the tests find real data, if it is there
FLEET_TEST_DATA ?= $(wildcard $(abspath ../shared/data))
export FLEET_TEST_DATA
export FLEET_SOURCE := $(CURDIR)

.PHONY: setup test test-long suite demo gallery soak
setup:
	@tools/setup test
test: setup
	@$(MAKE) --no-print-directory all
	@test/installed
	@$(MAKE) --no-print-directory suite
suite: $(SUITE)
	@test/suite $(SUITE) $(TEST_ARGS)
demo:
	@tools/setup demo
	@$(MAKE) --no-print-directory all
	@tools/demo
gallery: all
	@tools/demo-models
	@tools/gallery docs/gallery
test-long: setup
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory cuda
	@$(MAKE) --no-print-directory soak
	@test/mutants
	@FLEET_RUNS=200 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter ps_runs/*'
	@FLEET_KILLS=50 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter fleetrun_recovery/*'
	@FLEET_KILLS=20 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter heter_recovery/*'
	@FLEET_KILLS=4 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter ps_feed/a_subscriber_that_is_killed*'
	@FLEET_SEEDS=3 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter rank_jobs/fashion*'
	@bench/quality_torch --stored bench/results/2026-11-27-quality-torch.jsonl
	@FLEET_EMU_SEEDS=200 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter gpu_streams/*'
	@FLEET_EMU_SEEDS=20 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter cuda_kernels/agree_when_threads_and*'
	@FLEET_EVERY_ALLOCATION=1 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter enomem/*'
	@FLEET_MEMORY_STEP_KB=1000 $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter memory_limit/*'
	@tools/setup libzmq $(OTHER_ZMQ)
	@if [ -e $(OTHER_ZMQ)/libzmq.so.5 ]; then \
	    LD_LIBRARY_PATH=$(OTHER_ZMQ) $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter "@(socket*|ps_*)/*"'; fi
	@FLEET_SIM_SEEDS=$${FLEET_SIM_SEEDS:-100} $(MAKE) --no-print-directory \
	    suite TEST_ARGS='--filter "@(sim|sim_staleness|sim_feed)/*"'
	@test/gpu-run --device $(EMU_PLUGIN)
	@$(MAKE) --no-print-directory valgrind
	@$(MAKE) --no-print-directory tsan
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=300

# A job that trains for FLEET_SOAK_SECONDS (1,200) must stay as large as it was.
SOAK := $(BUILD)/soak
$(SOAK): $(BUILD)/test/soak/soak.o $(LIBDIR)/libfleet.so
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $< -L$(LIBDIR) -lfleet \
	    -Wl,-rpath,$(abspath $(LIBDIR)) -lm
soak: all $(SOAK)
	@test/soak/run $(SOAK)

# --- variants ---------------------------------------------------------------
# Each builds everything anew in a folder of its own. Trainings for quality take
# a hundredth of their data there.
.PHONY: asan ubsan tsan tsan-suite valgrind clang gcc everything layers tidy check
ASAN     := -fsanitize=address,undefined -fno-sanitize-recover=all
ASAN     += -fno-omit-frame-pointer -DTEST_SLOWNESS=10
# Its tests wait longer than they compute: twice as many as there are processors.
asan ubsan:
	@FLEET_TEST_FRACTION=100 \
	ASAN_OPTIONS=leak_check_at_exit=0:handle_segv=0:abort_on_error=1 \
	UBSAN_OPTIONS=print_stacktrace=1 \
	$(MAKE) --no-print-directory BUILD=build/asan OPT='-O1 -g1' \
	    VARIANT='$(ASAN)' suite \
	    TEST_ARGS="$(TEST_ARGS) --jobs $$(($$(nproc) * 2))"
# With a + in recipes: make sees no $(MAKE) in them, and would build by one job.
TSAN_MAKE = $(MAKE) --no-print-directory BUILD=build/tsan OPT='-O1 -g1' \
	    VARIANT='-fsanitize=thread -DFL_OWN_RUNNER -DTEST_SLOWNESS=20' TEST_LIBS=
tsan:
	+@FLEET_TEST_FRACTION=100 \
	TSAN_OPTIONS=suppressions=$(CURDIR)/test/tsan.supp:halt_on_error=1 \
	$(TSAN_MAKE) suite
# Built and not run.
tsan-suite:
	+@$(TSAN_MAKE) build/tsan/fleet-tests
# In parts (test/valgrind); VALGRIND_PARTS, folders of test/, are fewer.
valgrind:
	@$(MAKE) --no-print-directory BUILD=build/valgrind OPT='-O1 -g' \
	    VARIANT='-DTEST_SLOWNESS=60' build/valgrind/fleet-tests
	@test/valgrind $(VALGRIND_PARTS)
# oneDNN 3, which Debian 12 does not have: one source knows of oneDNN, and the other
# objects are those of the suite.
ONEDNN3  := $(CACHE)/onednn-3.2
SUITE3   := $(BUILD)/fleet-tests-onednn3
SUITE3_OBJ := $(filter-out $(BUILD)/src/ops/dnnl.o,$(filter %.o,$(TEST_OBJ) $(OBJ) \
              $(COMM_OBJ) $(NCCL_OBJ) $(EMU_OBJ) $(NODE_OBJ))) $(BUILD)/onednn3.o
$(BUILD)/onednn3.o: src/ops/dnnl.c $(ONEDNN3)/include/oneapi/dnnl/dnnl.h
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(CFLAGS_) -Werror -isystem $(ONEDNN3)/include -MMD -MP -c $< -o $@
$(SUITE3): $(SUITE3_OBJ) | $(SUITE)
	@echo "  LD    $@"
	$(Q)$(CXX) $(LDFLAGS_) -L$(ONEDNN3)/lib -Wl,-rpath,$(ONEDNN3)/lib -o $@ $^ \
	    $(LIBS) $(SODIUM_LIBS) $(TEST_LIBS)
.PHONY: onednn3 onednn3-suite
onednn3:
	@tools/setup onednn3 $(ONEDNN3)
	@if [ -d $(ONEDNN3) ]; then $(MAKE) --no-print-directory onednn3-suite; fi
onednn3-suite: $(SUITE3)
	@ldd $(SUITE3) | grep -F '$(ONEDNN3)/lib/libdnnl.so.3'
	@test/suite $(SUITE3) --filter \
	    '@(ops|torch|amp|executor|enomem|plan*|update|train|predictor|all_reduce)/*'
# Apache Arrow from PyPI: what the plug-in that reads Parquet is built with.
.PHONY: arrow
arrow:
	@tools/setup arrow $(PYARROW)
# onnx and onnxruntime from PyPI, for the suites onnx*, which skip without them.
.PHONY: onnx
onnx:
	@tools/setup onnx $(ONNX)
# Both compilers, warnings as errors: `gcc` as it is released; `clang` writes no
# objects, as its warnings do not need them.
EVERYTHING = all $(SUITE) $(BENCHES:%.c=$(BUILD)/%)
everything: $(EVERYTHING)
gcc:
	@$(MAKE) --no-print-directory BUILD=build/$@ CC=$@ WERROR=1 \
	    LIBDIR=build/$@/lib BINDIR=build/$@/bin everything
clang:
	@$(MAKE) --no-print-directory BUILD=build/$@ CC=$@ WERROR=1 \
	    OPT=-fsyntax-only sources
.PHONY: sources
sources: $(OBJ) $(COMM_OBJ) $(NCCL_OBJ) $(if $(MPI),$(MPI_SRC:%.c=$(BUILD)/%.o)) \
              $(TEST_OBJ) $(CUDA_ENTRY) $(patsubst %.c,$(BUILD)/%.o,\
              $(filter-out $(PLOT_NOT),$(wildcard tools/*.c tools/*/*.c samples/*.c \
              bench/*.c test/mpi-rank/*.c test/soak/*.c test/fuzz/*.c \
              test/nccl-emu/*.c test/plugins/*.c))) \
              $(EMU_OBJ) $(if $(ARROW_AT),$(ARROW_SRC:%.cpp=$(BUILD)/%.o))
layers: $(OBJ) $(EMU_OBJ)
	@tools/layers $(BUILD)
tidy:
	@tools/names
	@tools/sizes
	@tools/comments
	@tools/docs check
	@test/mutants --check
check: layers tidy gcc clang headers format-check asan tsan

# Every public header alone, as C17 and as C++17.
HEADER_WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
.PHONY: headers format format-check
headers:
	@for h in include/fleet/*.h; do \
	    $(CC) -std=c17 -fsyntax-only $(HEADER_WARN) -Wstrict-prototypes \
	        -Iinclude -x c $$h && \
	    $(CXX) -std=c++17 -fsyntax-only $(HEADER_WARN) -Iinclude -x c++ $$h \
	        || exit 1; done
	@echo "headers: each is valid alone as C17 and C++17"
FORMATTED = $(shell find include src test tools samples bench -name '*.[ch]' \
              -o -name '*.cu' -o -name '*.cpp')
format:
	@clang-format -i $(FORMATTED)
format-check:
	@clang-format --dry-run -Werror $(FORMATTED)

# --- fuzzing ----------------------------------------------------------------
FUZZERS  := $(patsubst test/fuzz/fuzz_%.c,%,$(wildcard test/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
FUZZ_SAN := -fsanitize=address,undefined -fno-sanitize-recover=all

$(BUILD)/fuzz-%: $(BUILD)/test/fuzz/fuzz_%.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) $(FUZZ_LINK) -o $@ $^ $(LIBS)
.PHONY: fuzz fuzz-all replay
fuzz:
	@$(MAKE) --no-print-directory BUILD=build/fuzz CC=clang OPT='-O1 -g' \
	    VARIANT='-fsanitize=fuzzer-no-link $(FUZZ_SAN)' \
	    FUZZ_LINK=-fsanitize=fuzzer fuzz-all
fuzz-all: $(FUZZERS:%=$(BUILD)/fuzz-%)
	@for f in $(FUZZERS); do mkdir -p build/corpus/$$f; \
	    echo "fuzz $$f"; $(BUILD)/fuzz-$$f -max_total_time=$(FUZZ_SECONDS) \
	    -timeout=10 -rss_limit_mb=4096 -verbosity=0 -print_final_stats=0 \
	    build/corpus/$$f test/fuzz/corpus/$$f || exit 1; done
# The committed corpus through every fuzz target, without libFuzzer.
replay:
	@for f in $(FUZZERS); do \
	    $(MAKE) --no-print-directory BUILD=build/asan OPT='-O1 -g1' \
	    VARIANT='$(ASAN)' \
	    build/asan/replay-$$f || exit 1; \
	    build/asan/replay-$$f test/fuzz/corpus/$$f || exit 1; done
$(BUILD)/replay-%: $(BUILD)/test/fuzz/fuzz_%.o $(BUILD)/test/fuzz/replay.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)

# --- installation -----------------------------------------------------------
INSTALL_LIB := $(DESTDIR)$(PREFIX)/lib
.PHONY: install uninstall clean
install: all
	install -d $(DESTDIR)$(PREFIX)/include/fleet $(INSTALL_LIB)/pkgconfig \
	    $(INSTALL_LIB)/cmake/fleet $(DESTDIR)$(PREFIX)/bin
	install -m 644 include/fleet/*.h $(DESTDIR)$(PREFIX)/include/fleet
	install -m 644 $(LIBDIR)/libfleet.a $(INSTALL_LIB)
	install -m 755 $(LIBDIR)/libfleet.so.$(VERSION) $(INSTALL_LIB)
	$(foreach p,$(PLUGINS),install -m 755 $(LIBDIR)/$(p) $(INSTALL_LIB);)
	$(if $(ARROW_AT),install -d $(INSTALL_LIB)/fleet-arrow && install -m 755 \
	    $(wildcard $(foreach l,parquet arrow,$(ARROW_AT)/lib$(l).so*)) \
	    $(INSTALL_LIB)/fleet-arrow)
	[ -z "$(CUDA_LIB)" ] || install -m 755 $(CUDA_LIB) $(INSTALL_LIB)
	ln -sf libfleet.so.$(VERSION) $(INSTALL_LIB)/libfleet.so.$(SOMAJOR)
	ln -sf libfleet.so.$(VERSION) $(INSTALL_LIB)/libfleet.so
	$(foreach t,fleet-train fleet-predict fleet-export,$(CC) $(LDFLAGS_) \
	    -o $(DESTDIR)$(PREFIX)/bin/$(t) $(BUILD)/tools/$(t).o -L$(LIBDIR) \
	    -lfleet -Wl,-rpath,'$$ORIGIN/../lib' -lm;)
	install -m 755 $(BINDIR)/fleetrun $(BINDIR)/fleet-replay \
	    $(BINDIR)/fleet-inspect $(BINDIR)/fleet-datagen $(BINDIR)/fleetctl \
	    $(BINDIR)/fleet-plot \
	    $(DESTDIR)$(PREFIX)/bin
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@LIBS@|$(LIBS)|' \
	    tools/fleet.pc.in >$(INSTALL_LIB)/pkgconfig/fleet.pc
	sed 's|@VERSION@|$(VERSION)|; s|@LIBS@|$(LIBS:-l%=%)|' \
	    tools/fleet-config.cmake.in >$(INSTALL_LIB)/cmake/fleet/fleet-config.cmake
	sed 's|@VERSION@|$(VERSION)|' tools/fleet-config-version.cmake.in \
	    >$(INSTALL_LIB)/cmake/fleet/fleet-config-version.cmake
	[ -n "$(DESTDIR)" ] || ldconfig || true # so that programs find it at once
uninstall:
	rm -rf $(DESTDIR)$(PREFIX)/include/fleet $(INSTALL_LIB)/cmake/fleet \
	    $(INSTALL_LIB)/fleet-arrow
	rm -f $(INSTALL_LIB)/libfleet.* $(INSTALL_LIB)/libfleet_mpi.so \
	    $(INSTALL_LIB)/libfleet_arrow.so \
	    $(INSTALL_LIB)/libfleet_cuda.so \
	    $(INSTALL_LIB)/pkgconfig/fleet.pc \
	    $(DESTDIR)$(PREFIX)/bin/fleet-train $(DESTDIR)$(PREFIX)/bin/fleetrun \
	    $(DESTDIR)$(PREFIX)/bin/fleet-predict \
	    $(DESTDIR)$(PREFIX)/bin/fleet-export \
	    $(DESTDIR)$(PREFIX)/bin/fleet-replay \
	    $(DESTDIR)$(PREFIX)/bin/fleet-inspect \
	    $(DESTDIR)$(PREFIX)/bin/fleet-datagen \
	    $(DESTDIR)$(PREFIX)/bin/fleetctl \
	    $(DESTDIR)$(PREFIX)/bin/fleet-plot
clean:
	rm -rf build $(LIBDIR) $(BINDIR)

# --- benchmarks ---------------------------------------------------------------
# data_*.c, ps_*.c, rows_*.c and gpu_*.c look inside: they are linked with the
# library's objects
$(BUILD)/bench/data_%: $(BUILD)/bench/data_%.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
$(BUILD)/bench/ps_%: $(BUILD)/bench/ps_%.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
$(BUILD)/bench/rows_%: $(BUILD)/bench/rows_%.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
$(BUILD)/bench/gpu_%: $(BUILD)/bench/gpu_%.o $(OBJ)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $^ $(LIBS)
# of which D7 has protobuf-c's messages inside
$(BUILD)/bench/data_d7.o: $(if $(PROTOBUF_C_LIBS),$(BUILD)/gen/example.pb-c.c)
$(BUILD)/bench/data_d7.o: CFLAGS_ += -isystem $(BUILD)/gen \
              -DHAVE_PROTOBUF_C=$(if $(PROTOBUF_C_LIBS),1,0)
$(BUILD)/bench/data_d7: $(if $(PROTOBUF_C_LIBS),$(BUILD)/gen/example.pb-c.o)
# and so is ranks, which has its peers inside
GLOO     := $(wildcard /usr/include/gloo/allreduce.h)
$(BUILD)/bench/ranks.o: CFLAGS_ += $(MPI_CFLAGS) -DHAVE_MPI=$(if $(MPI),1,0) \
              -DHAVE_GLOO=$(if $(GLOO),1,0)
$(BUILD)/bench/%.o: bench/%.cc
	@mkdir -p $(@D)
	@echo "  CXX   $@"
	$(Q)$(CXX) -std=c++17 -O2 -g -MMD -MP -c $< -o $@
$(BUILD)/bench/ranks: $(BUILD)/bench/ranks.o $(OBJ) \
              $(if $(GLOO),$(BUILD)/bench/gloo_peer.o) | $(PLUGINS:%=$(BUILD)/%)
	@echo "  LD    $@"
	$(Q)$(if $(GLOO),$(CXX),$(CC)) $(LDFLAGS_) -o $@ $^ $(LIBS) $(MPI_LIBS) \
	    $(if $(GLOO),-lgloo)
$(BUILD)/bench/%: $(BUILD)/bench/%.o $(LIBDIR)/libfleet.so
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS_) -o $@ $< -L$(LIBDIR) -lfleet \
	    -Wl,-rpath,'$$ORIGIN/../../../$(LIBDIR)',-rpath,$(abspath $(LIBDIR)) $(LIBS)

.PHONY: bench
bench: lib
	bench/run

-include $(shell find $(BUILD) $(CUDA_BUILD) -name '*.d' 2>/dev/null)
