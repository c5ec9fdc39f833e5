/* sequence.cu - the CUDA half of sequence.c; a thread has a place of a row. */
#include "ops/sequence/sequence.h"

#include "runtime/device/cuda/block.h"

static const fl_sequence_config *config_of(const fl_device_step *s)
{
    return static_cast<const fl_sequence_config *>(s->config);
}

template <typename T>
__global__ static void pad_all(T *out, const T *x, const int64_t *offset,
                               int64_t n, fl_sequence_config c)
{
    FL_EACH(i, n)
    {
        int64_t row = i / c.most, place = i % c.most;
        fl_sequence_part part = fl_sequence_kept(&c, offset + row);

        out[i] = place < part.n ? x[part.first + place] : (T)c.value;
    }
}

__global__ static void mask_all(float *out, const int64_t *offset, int64_t n,
                                fl_sequence_config c)
{
    FL_EACH(i, n)
    {
        int64_t kept = fl_sequence_kept(&c, offset + i / c.most).n;

        out[i] = i % c.most < kept ? 1.0f : 0.0f;
    }
}

template <typename T>
static fleet_status pad_by(fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(pad_all<T>, n, q, fl_step_ptr<T>(s, 0),
                          static_cast<const T *>(s->arg[1].data),
                          s->arg[1].offsets, n, *config_of(s));
}

static fleet_status pad(fl_device *, fl_queue *q, const fl_device_step *s)
{
    return s->arg[0].dtype == FLEET_INT64 ? pad_by<int64_t>(q, s)
                                          : pad_by<float>(q, s);
}

static fleet_status mask(fl_device *, fl_queue *q, const fl_device_step *s)
{
    int64_t n = fl_step_count(s, 0);

    return FL_LAUNCH_EACH(mask_all, n, q, fl_step_f32(s, 0), s->arg[1].offsets,
                          n, *config_of(s));
}

extern const fl_device_kernel fl_cuda_sequence[];
const fl_device_kernel fl_cuda_sequence[] = {
    FL_KERNEL("sequence_pad", pad),
    FL_KERNEL("sequence_mask", mask),
    FL_KERNEL_END,
};
