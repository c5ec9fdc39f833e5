/* dropout.cu - the CUDA half of dropout.c: a thread draws for a block of
 * columns. */
#include "ops/norm/dropout.h"

#include "runtime/device/cuda/cuda.h"
#include "runtime/optim/update_gpu.h"

enum { OUT, IN, NUMBERS };

/* now is NULL where nothing is dropped. */
__global__ static void drop_blocks(float *out, const float *x, int64_t n,
                                   const fl_device_update *now, fl_dropout c)
{
    int64_t blocks = (c.cols + FL_DROPOUT_BLOCK - 1) / FL_DROPOUT_BLOCK;
    int64_t batch = now ? now->batch : 0;

    FL_EACH(i, n)
    {
        int64_t row = i / blocks, first = i % blocks * FL_DROPOUT_BLOCK;
        fl_rng4 draw = fl_dropout_draw(&c, batch, row, i % blocks);

        for (int k = 0; k < FL_DROPOUT_BLOCK && first + k < c.cols; k++) {
            int64_t at = row * c.cols + first + k;

            out[at] = draw.v[k] < c.below ? 0.0f : c.scale * x[at];
        }
    }
}

static fleet_status dropout(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_dropout *c = static_cast<const fl_dropout *>(s->config);
    int64_t blocks = (c->cols + FL_DROPOUT_BLOCK - 1) / FL_DROPOUT_BLOCK;
    int64_t n = fl_step_rows(s, OUT) * blocks;

    return FL_LAUNCH_EACH(drop_blocks, n, q, fl_step_f32(s, OUT),
                          fl_step_f32(s, IN), n,
                          fl_step_ptr<const fl_device_update>(s, NUMBERS), *c);
}

extern const fl_device_kernel fl_cuda_dropout[];
const fl_device_kernel fl_cuda_dropout[] = {
    FL_KERNEL("dropout", dropout),
    FL_KERNEL_END,
};
