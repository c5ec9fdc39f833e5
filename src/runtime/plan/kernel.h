/* kernel.h - a kernel: the functions that do the work of a step, and their
 * arguments.
 *
 * A kernel says how its work may be split among threads:
 *
 *   FL_SPLIT_ROWS   by rows of the batch. A call computes rows [begin, end) of
 *                   everything it writes, from the same rows of the batch's
 *                   values and from values without a batch. Consecutive steps
 *                   of this kind run slice by slice, without waiting for other
 *                   slices.
 *   FL_SPLIT_PARTS  into n_part independent calls, a number that is fixed or
 *                   that prepare() chooses from shapes alone, never from the
 *                   number of threads. A call may read all of its operands; no
 *                   two parts write to the same place.
 *
 * Either way bits do not depend on how many threads run.
 *
 * Buffers of the arena have rows up to the plan's capacity, also where the
 * batch is smaller: kernels that work on whole blocks may read and write them.
 */
#pragma once

#include "runtime/graph/op.h"

typedef enum fl_split { FL_SPLIT_ROWS, FL_SPLIT_PARTS } fl_split;

/* An operand, resolved: it lies at *base + offset. */
typedef struct fl_arg {
    char *const *base;
    size_t offset;
    int64_t cols;   /* elements of a row */
    int64_t ld;     /* elements from a row to the next */
    int64_t factor; /* rows per row of the batch; 0: no batch, `rows` fixed */
    int64_t rows;   /* at full capacity */
    fleet_dtype dtype;
} fl_arg;

/* One step in one executor. */
typedef struct fl_instance {
    const struct fl_step *step;
    fl_arg *arg; /* as the step's operands */
    void *state; /* kernel->state_size zeroed bytes */

    /* for prepare() to set */
    int n_part;          /* FL_SPLIT_PARTS; at first the kernel's, or 1 */
    size_t scratch_size; /* bytes that a call needs for itself */

    /* for prepare() to read */
    int64_t batch; /* the plan's capacity */
    int64_t slice; /* rows of a full slice; batch buffers hold a multiple */
    int n_thread;
    uint64_t seed;
} fl_instance;

/* One call of a kernel. */
typedef struct fl_range {
    int64_t begin, end; /* rows of the batch, or the part */
    int64_t batch;      /* rows that count in this run */
    int64_t slice;      /* which slice: begin / the slice size */
    int thread;         /* below n_thread */
    void *scratch;      /* scratch_size bytes, 64-byte aligned */
} fl_range;

typedef struct fl_kernel {
    const char *name; /* "fc.dw": the op, and which of its steps */
    fl_split split;
    int n_part; /* FL_SPLIT_PARTS: the number, if it is fixed; else 0 */
    size_t state_size;
    fleet_status (*prepare)(fl_instance *in); /* NULL: nothing to do */
    void (*finish)(fl_instance *in); /* NULL: nothing; also after a failed
                                        prepare */

    /* Before an iteration, on one thread: make room for what it brings. */
    fleet_status (*begin)(const fl_instance *in, int64_t batch);
    fleet_status (*run)(const fl_instance *in, const fl_range *r);
    bool whole_batch; /* reads all rows of its batched operands up to the
                         capacity: they are zero past the batch */

    /* Its CUDA half, where it is not the plug-in's of that name; or NULL. */
    const struct fl_device_kernel *device;

    bool meets; /* ranks meet in it before they reduce gradients: one that has
                   joined runs it, too */

    bool on_host; /* runs on the host, wherever the program runs */
    bool on_gpu;  /* runs on the GPU, the same */

    /* Operands by bit of a step that a communicator does: what ranks reduce. It
     * is in the GPU's memory if the communicator can reduce in that memory. */
    unsigned reduces;

    /* Operands by bit, for pass amp: which of them may be of bfloat16, as run()
     * sees by their dtype; and which of them it makes so, all or none. The CUDA
     * half takes the same, and float16. */
    unsigned takes_half, wants_half;
} fl_kernel;

static inline void *fl_ptr(const fl_instance *in, int i)
{
    return *in->arg[i].base + in->arg[i].offset;
}

/* Row `begin` of the range in a batched operand; of another one, its start. */
static inline float *fl_rows_f32(const fl_instance *in, int i,
                                 const fl_range *r)
{
    const fl_arg *a = &in->arg[i];

    return (float *)fl_ptr(in, i) + r->begin * a->factor * a->ld;
}

/* The same, whatever its type. */
static inline void *fl_rows_any(const fl_instance *in, int i, const fl_range *r)
{
    const fl_arg *a = &in->arg[i];

    return (char *)fl_ptr(in, i) +
           (size_t)(r->begin * a->factor * a->ld) * fleet_dtype_size(a->dtype);
}

static inline bool fl_is_bf16(const fl_instance *in, int i)
{
    return in->arg[i].dtype == FLEET_BFLOAT16;
}

/* Elements of the range in a batched operand without gaps. */
static inline int64_t fl_count(const fl_instance *in, int i, const fl_range *r)
{
    const fl_arg *a = &in->arg[i];

    return (r->end - r->begin) * a->factor * a->cols;
}
