/* class_weight.cu - the CUDA half of class_weight.c. What no class is leaves
 * its row in the step's fault, and 0 in the result. */
#include "ops/math/class_weight.h"

#include "runtime/device/cuda/block.h"

__global__ static void class_weight_all(float *out, const int64_t *label,
                                        int64_t rows, fl_class_weight c,
                                        uint64_t *fault)
{
    FL_EACH(r, rows)
    {
        int64_t k = label[r];
        bool fits = k >= 0 && k < c.n;

        out[r] = fits ? c.weight[k] : 0.0f;
        if (!fits)
            fl_fault(fault, r);
    }
}

static fleet_status class_weight(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    int64_t rows = fl_step_rows(s, 0);

    return FL_LAUNCH_EACH(class_weight_all, rows, q, fl_step_f32(s, 0),
                          fl_step_ptr<int64_t>(s, 1), rows,
                          *static_cast<const fl_class_weight *>(s->config),
                          s->fault);
}

extern const fl_device_kernel fl_cuda_class_weight[];
const fl_device_kernel fl_cuda_class_weight[] = {
    FL_KERNEL("class_weight", class_weight),
    FL_KERNEL_END,
};
