/* nccl_gpu.h - the CUDA functions that the C files of this room call, defined
 * in nccl_gpu.cu. A function that returns an int returns CUDA's result, 0 for
 * success; fl_cu_text() has it in words. Work is queued on the stream. */
#pragma once

#include "runtime/device/device.h"
#include "runtime/device/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FL_CU_NOT_READY = 600, FL_CU_BUS = 32 };

const char *fl_cu_text(int result);

/* A function that an NCCL for these GPUs has beside NCCL's own; NULL: none.
 * Only emulated GPUs ask for one. */
const char *fl_cu_nccl_sign(void);

/* FL_CU_BUS characters: "0000:3b:00.0". */
int fl_cu_bus(int device, char *bus);

/* The device of this thread's calls from now on. */
int fl_cu_enter(int device);

int fl_cu_stream_create(fl_queue **q);
void fl_cu_stream_destroy(fl_queue *q);
int fl_cu_event_create(fl_event **e);
void fl_cu_event_destroy(fl_event *e);
int fl_cu_record(fl_event *e, fl_queue *q);
int fl_cu_look(fl_event *e); /* FL_CU_NOT_READY: not yet */
int fl_cu_after(fl_queue *q, fl_event *e);

int fl_cu_alloc(fl_queue *q, int64_t bytes, void **p);
void fl_cu_free(fl_queue *q, void *p);
int fl_cu_zero(fl_queue *q, void *p, int64_t bytes);

/* From any memory to any. What is not pinned makes it wait. */
int fl_cu_copy(fl_queue *q, void *to, const void *from, int64_t bytes);
int fl_cu_wait(fl_queue *q); /* without a deadline: for copies alone */
bool fl_cu_is_host(const void *p);

/* out = the n elements of `size` sources, which lie `step` elements apart from
 * `in` on, reduced in their order: the bits of reduce_kernels.h. out may be one
 * of them. */
typedef struct fl_cu_reduce {
    fl_reduce how;
    fl_wire_type type;
    const void *in;
    int64_t step;
    int size;
    void *out;
    int64_t n;
} fl_cu_reduce;
int fl_cu_reduce_run(fl_queue *q, const fl_cu_reduce *f);

/* Times 1 / size, of float32 or float64. */
int fl_cu_mean(fl_queue *q, fl_wire_type type, void *x, int64_t n, int size);

#ifdef __cplusplus
}
#endif
