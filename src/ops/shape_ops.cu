/* shape_ops.cu - the CUDA half of shape_ops.c. */
#include "ops/shape_ops.h"

#include "runtime/device/cuda/cuda.h"

enum { OUT, IN };

/* Rows of pieces on both sides: the pieces of a row lie `step` apart. */
struct pieces {
    float *data;
    int64_t ld, step;
};

__global__ static void copy_pieces(pieces to, pieces from, int64_t n,
                                   fl_concat_piece p)
{
    FL_EACH(i, n)
    {
        int64_t at = i % p.size, piece = i / p.size % p.n_piece;
        int64_t row = i / (p.size * p.n_piece);

        to.data[row * to.ld + piece * to.step + at] =
            from.data[row * from.ld + piece * from.step + at];
    }
}

static pieces narrow(const fl_device_step *s, int i, const fl_concat_piece *p)
{
    return {fl_step_f32(s, i), s->arg[i].ld, p->size};
}

static pieces wide(const fl_device_step *s, int i, const fl_concat_piece *p)
{
    return {fl_step_f32(s, i) + p->column, s->arg[i].ld, p->whole};
}

static fleet_status copy(fl_queue *q, const fl_device_step *s, pieces to,
                         pieces from, const fl_concat_piece *p)
{
    int64_t n = fl_step_rows(s, OUT) * p->n_piece * p->size;

    return FL_LAUNCH_EACH(copy_pieces, n, q, to, from, n, *p);
}

static fleet_status concat(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_concat_config *c =
        static_cast<const fl_concat_config *>(s->config);

    for (int i = 0; i < c->n; i++) {
        const fl_concat_piece *p = &c->piece[i];

        FL_TRY(copy(q, s, wide(s, OUT, p), narrow(s, IN + i, p), p));
    }
    return FLEET_OK;
}

static fleet_status split(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_concat_piece *p =
        static_cast<const fl_concat_config *>(s->config)->piece;

    return copy(q, s, narrow(s, OUT, p), wide(s, IN, p), p);
}

static fleet_status reshape(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    return d->methods->copy(d, q, s->arg[OUT].data, s->arg[IN].data,
                            (size_t)fl_step_count(s, OUT) * sizeof(float),
                            FL_ON_DEVICE);
}

extern const fl_device_kernel fl_cuda_shape_ops[];
const fl_device_kernel fl_cuda_shape_ops[] = {
    FL_KERNEL("concat", concat),
    FL_KERNEL("concat.grad", split),
    FL_KERNEL("reshape", reshape),
    FL_KERNEL_END,
};
