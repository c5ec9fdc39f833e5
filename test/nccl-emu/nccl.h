/* nccl.h - what a test may ask of the emulated NCCL, and what that needs of the
 * emulated device. It is a library of its own, which is opened as the real one
 * is: libnccl.so.2. A test opens it, too, and finds these by dlsym(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The emulated device's, of test/cuda-emu/control.h. */
typedef struct fl_nccl_emu_device {
    long (*begin)(void *stream); /* something is under way on the stream */
    bool (*reach)(void *stream, long after);
    void (*end)(void *stream);
    bool (*has)(const void *p, size_t bytes);
} fl_nccl_emu_device;

void fl_nccl_emu_connect(const fl_nccl_emu_device *device);

typedef enum fl_nccl_emu_fault {
    FL_NCCL_EMU_FINE,
    FL_NCCL_EMU_HANGS,      /* what begins from now on never ends */
    FL_NCCL_EMU_FAILS,      /* alike, and says that another rank has failed */
    FL_NCCL_EMU_SLOW_START, /* a communicator is never ready */
    FL_NCCL_EMU_DEAF        /* as HANGS, and an abort does not return until
                               there is another fault */
} fl_nccl_emu_fault;

void fl_nccl_emu_set_fault(fl_nccl_emu_fault fault);
int fl_nccl_emu_live(void);  /* communicators that have not ended */
int fl_nccl_emu_begun(void); /* calls that have begun so far */
