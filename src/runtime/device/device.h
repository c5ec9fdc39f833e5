/* device.h - the interface of a device with memory of its own: memory, queues
 * (CUDA calls them streams, and so do the methods), events, copies, matrix
 * products, and kernels, found by the names of the steps that they compute
 * (kernel.h).
 *
 * Devices come from a plug-in (lib/libfleet_cuda.so): it gives a table of
 * functions, fl_device_table, which begins with its size and version, and
 * exports no symbol for them.
 *
 * The work on a queue is done in its order. A call that only queues work
 * returns before the work is done; a failure of the work is reported by the
 * next wait. Queued work does not read the host's memory later, but for copies
 * from and to pinned memory, which the caller keeps until they are done. So
 * every kernel can be captured into a CUDA graph: what changes from iteration
 * to iteration (learning rate, step, counts) is read from device memory.
 *
 * Waits have a deadline: FLEET_ETIMEDOUT, and the device is given up. Until a
 * wait succeeds again, waits return at once, and what is freed or destroyed
 * stays: on such a device that might not return.
 *
 * Threads: one at a time for a device, whichever it is.
 *
 * This header is plain C and C++, and includes no other internal header.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <fleet/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_device fl_device;
typedef struct fl_queue fl_queue;
typedef struct fl_event fl_event;
typedef struct fl_gemm fl_gemm;
typedef struct fl_graph fl_graph;

typedef enum fl_copy { FL_TO_DEVICE, FL_TO_HOST, FL_ON_DEVICE } fl_copy;

/* --- matrix products ------------------------------------------------------ */

/* What is done to a product before it is stored, in one pass over it. */
typedef enum fl_epilogue {
    FL_GEMM_PLAIN,
    FL_GEMM_BIAS,      /* + bias[n] */
    FL_GEMM_BIAS_RELU, /* the same, then relu, which keeps NaN */

    /* c is the product alone; besides, bias[n] = the sum of b's rows, which are
     * of the gradient of what has the bias: that is a layer's dW and db. c is
     * float32. */
    FL_GEMM_BIAS_GRADIENT
} fl_epilogue;

/* c[m, n] = epilogue(a[m, k] . b[k, n]), row-major; ta: a is stored [k, m].
 * Sums are of float; a bias is of c's type. */
typedef struct fl_gemm_spec {
    int64_t m, n, k;
    bool ta, tb;
    int64_t lda, ldb, ldc;
    fl_epilogue epilogue;
    /* bytes that the addresses are multiples of; 0: an element's */
    uint32_t align_a, align_b, align_c, align_bias;
    fleet_dtype in, out; /* of a and b, of c; 0: float32 */
    int64_t batch; /* not 0: that many matrices of each, side by side; PLAIN */
} fl_gemm_spec;

typedef struct fl_gemm_data {
    const void *a, *b;
    void *c;
    void *bias; /* written by BIAS_GRADIENT alone */
} fl_gemm_data;

/* --- kernels -------------------------------------------------------------- */

/* An operand in device memory, as fl_arg is on the host. */
typedef struct fl_device_arg {
    void *data; /* NULL: absent */
    int64_t cols, ld, factor, rows;
    fleet_dtype dtype;
    const int64_t *offsets; /* of a ragged feed, in device memory */
} fl_device_arg;

#define FL_NO_FAULT UINT64_MAX

/* One step on one device. */
typedef struct fl_device_step {
    const fl_device_arg *arg; /* as the step's operands */
    int n_arg;
    const void *config;  /* as the kernel on CPUs has it, host memory */
    int64_t batch;       /* rows of the batch */
    void *state;         /* kernel->state_size zeroed bytes, host memory */
    size_t scratch_size; /* for prepare() to set */
    void *scratch; /* device memory of that size, the step's while it runs */

    /* A word in device memory. An id or a label that is out of range is not
     * used, and the least row of the batch that has one is put in this word,
     * which was FL_NO_FAULT. Each step has a word of its own: after the
     * iteration the word tells which step has the fault. */
    uint64_t *fault;
} fl_device_step;

typedef struct fl_device_kernel {
    const char *name; /* "fc.dw", as in kernel.h */
    fleet_dtype dtype;
    size_t state_size;
    fleet_status (*prepare)(fl_device *d, fl_queue *q, fl_device_step *s);
    void (*finish)(fl_device *d, fl_device_step *s); /* also after a failed
                                                        prepare */
    fleet_status (*run)(fl_device *d, fl_queue *q, const fl_device_step *s);
} fl_device_kernel;

/* --- the device ----------------------------------------------------------- */

typedef struct fl_device_class {
    /* Memory for work that is queued on q after alloc and before free. Freed
     * memory may be given out again at once, to the same queue. */
    fleet_status (*alloc)(fl_device *d, fl_queue *q, size_t bytes, void **p);
    void (*free)(fl_device *d, fl_queue *q, void *p);

    /* Memory of the host, from and to which copies run beside kernels. */
    fleet_status (*alloc_pinned)(fl_device *d, size_t bytes, void **p);
    void (*free_pinned)(fl_device *d, void *p);

    fleet_status (*stream_create)(fl_device *d, fl_queue **q);
    void (*stream_destroy)(fl_device *d, fl_queue *q);
    fleet_status (*stream_wait)(fl_device *d, fl_queue *q, int64_t ms);

    /* Let what is queued on q from now on wait for the event. */
    fleet_status (*stream_after)(fl_device *d, fl_queue *q, fl_event *e);

    fleet_status (*event_create)(fl_device *d, bool timed, fl_event **e);
    void (*event_destroy)(fl_device *d, fl_event *e);
    fleet_status (*event_record)(fl_device *d, fl_event *e, fl_queue *q);
    fleet_status (*event_wait)(fl_device *d, fl_event *e, int64_t ms);
    fleet_status (*event_done)(fl_device *d, fl_event *e, bool *done);
    fleet_status (*event_elapsed)(fl_device *d, fl_event *from, fl_event *to,
                                  float *ms);

    fleet_status (*copy)(fl_device *d, fl_queue *q, void *to, const void *from,
                         size_t bytes, fl_copy kind);

    /* A few words of 4 bytes between pinned memory and the device's, by a
     * kernel: in a CUDA graph a copy is another engine's, and kernels wait
     * longer for it than it takes. */
    fleet_status (*copy_words)(fl_device *d, fl_queue *q, void *to,
                               const void *from, size_t n);

    /* n rows of `bytes` bytes, whose starts are ld_to and ld_from bytes apart.
     * If the host's memory is not pinned, the call returns when the copy is
     * done, or the memory is read: it may wait for all queued work. */
    fleet_status (*copy_rows)(fl_device *d, fl_queue *q, void *to, size_t ld_to,
                              const void *from, size_t ld_from, size_t bytes,
                              size_t n, fl_copy kind);
    fleet_status (*fill)(fl_device *d, fl_queue *q, void *p, int byte,
                         size_t bytes);

    /* gemm_create() chooses how the product is computed, for which it may
     * wait for what is queued. Products of a device run on one queue. */
    fleet_status (*gemm_create)(fl_device *d, fl_queue *q,
                                const fl_gemm_spec *spec, fl_gemm **g);
    fleet_status (*gemm_run)(fl_device *d, fl_queue *q, fl_gemm *g,
                             const fl_gemm_data *data);
    void (*gemm_destroy)(fl_device *d, fl_gemm *g);

    /* How the product is computed, in a word. */
    const char *(*gemm_way)(const fl_gemm *g);

    /* Work that is queued on q between begin and end is not done but kept in a
     * graph; each launch then does all of it, in that order and with the same
     * addresses, so the memory must live as long as the graph. Between begin
     * and end the caller does not wait, allocate, free or use events, and
     * copies from and to the host's memory only if it is pinned. After each
     * begin comes an end, which fails if any of this was tried; q is then as
     * before. */
    fleet_status (*capture_begin)(fl_device *d, fl_queue *q);
    fleet_status (*capture_end)(fl_device *d, fl_queue *q, fl_graph **g);
    fleet_status (*graph_launch)(fl_device *d, fl_queue *q, fl_graph *g);
    void (*graph_destroy)(fl_device *d, fl_graph *g); /* NULL is fine */

    /* NULL: the device has none of that name and type. */
    const fl_device_kernel *(*kernel)(const fl_device *d, const char *name,
                                      fleet_dtype dtype);
    void (*destroy)(fl_device *d); /* NULL is fine */
} fl_device_class;

struct fl_device {
    const fl_device_class *methods;
    char name[256]; /* "NVIDIA H200" */
    int ordinal;
    int major, minor; /* of its compute capability */
};

typedef struct fl_device_options {
    bool strict_fp32; /* products in float32; else in TF32 where there is it */
} fl_device_options;

/* --- the table ------------------------------------------------------------ */

enum { FL_DEVICE_VERSION = 8 };

/* What the plug-in gives. */
typedef struct fl_device_table {
    uint32_t size, version;

    /* Devices there are. FLEET_ENODEVICE says what is missing. */
    fleet_status (*count)(int *n);
    fleet_status (*open)(int ordinal, const fl_device_options *o,
                         fl_device **d);
    const fl_device_kernel *(*kernel_at)(int i); /* NULL after the last */
} fl_device_table;

#ifdef __cplusplus
}
#endif
