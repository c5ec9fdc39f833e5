/* status.cu - how an iteration went: what stops the updates of it and of all
 * that follow, until the host has read it. */
#include "runtime/device/cuda/cuda.h"
#include "runtime/optim/update_gpu.h"

enum { STATUS, LOSS, FAULTS };

enum { THREADS = 128 };

/* The first step that has a fault, or n. */
__device__ static int first_fault(const uint64_t *fault, int n)
{
    __shared__ int first;

    if (threadIdx.x == 0)
        first = n;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        if (fault[i] != FL_NO_FAULT)
            atomicMin(&first, i);
    __syncthreads();
    return first;
}

__global__ static void end_iteration(fl_device_status *s, const float *loss,
                                     const uint64_t *fault, fl_device_end c)
{
    int step = first_fault(fault, c.n_step);

    if (threadIdx.x != 0)
        return;
    if (loss)
        s->loss = *loss;
    if (s->stop)
        return;
    if (step < c.n_step) {
        s->stop = 1;
        s->step = step;
        s->row = fault[step];
    } else if (loss && c.trains && !(*loss - *loss == 0.0f)) {
        s->stop = 1;
        s->step = -1;
    }
}

static fleet_status end(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return FL_LAUNCH(end_iteration, 1, THREADS, 0, q,
                     fl_step_ptr<fl_device_status>(s, STATUS),
                     fl_step_f32(s, LOSS), fl_step_ptr<uint64_t>(s, FAULTS),
                     *static_cast<const fl_device_end *>(s->config));
}

extern const fl_device_kernel fl_cuda_status[];
const fl_device_kernel fl_cuda_status[] = {
    FL_KERNEL("iteration.end", end),
    FL_KERNEL_END,
};
