/* embedding.cu - the CUDA half of embedding.c. A row's gradient is the sum of
 * its uses in the order of (sample, place): ids are sorted, and a thread adds
 * up what the equal ones have in its column. */
#include "ops/embedding.h"

#include "runtime/device/cuda/block.h"
#include "runtime/device/cuda/sort.h"

static const fl_embedding_config *config_of(const fl_device_step *s)
{
    return static_cast<const fl_embedding_config *>(s->config);
}

/* --- embedding: out <- ids, W --------------------------------------------- */

__global__ static void copy_rows(float *out, const int64_t *ids, const float *w,
                                 int64_t n, fl_embedding_config c,
                                 uint64_t *fault)
{
    FL_EACH(i, n)
    {
        int64_t at = i / c.dim, id = ids[at];
        bool fits = id >= 0 && id < c.rows;

        out[i] = fits && id != c.padding ? w[id * c.dim + i % c.dim] : 0.0f;
        if (!fits && i % c.dim == 0)
            fl_fault(fault, at / c.per_row);
    }
}

static fleet_status forward(fl_device *, fl_queue *q, const fl_device_step *s)
{
    const fl_embedding_config *c = config_of(s);
    int64_t n = s->batch * c->per_row * c->dim;

    return FL_LAUNCH_EACH(copy_rows, n, q, fl_step_f32(s, 0),
                          fl_step_ptr<int64_t>(s, 1), fl_step_f32(s, 2), n, *c,
                          s->fault);
}

/* --- embedding.grad: dW <- ids, g ----------------------------------------- */

/* Ids as keys; all ids that have no row get the same key, above the rows. */
__global__ static void keys_of(uint64_t *key, const int64_t *ids, int64_t n,
                               fl_embedding_config c, int64_t *count)
{
    FL_EACH(i, n)
    {
        bool fits = ids[i] >= 0 && ids[i] < c.rows && ids[i] != c.padding;

        key[i] = (uint64_t)(fits ? ids[i] : c.rows);
        if (i == 0)
            *count = n;
    }
}

/* Thread (i, column): where a key's first is, its sum. */
__global__ static void sum_uses(float *dw, fl_sorted by, const float *g,
                                int64_t n, fl_embedding_config c)
{
    FL_EACH(i, n * c.dim)
    {
        int64_t rank = i / c.dim, column = i % c.dim;
        uint64_t key = by.key[rank];
        float sum = 0.0f;

        if (key == (uint64_t)c.rows || (rank > 0 && by.key[rank - 1] == key))
            continue;
        for (; rank < n && by.key[rank] == key; rank++)
            sum += g[(int64_t)by.position[rank] * c.dim + column];
        dw[(int64_t)key * c.dim + column] = sum;
    }
}

/* The scratch: the count, n keys, the sort's. */
static size_t count_bytes()
{
    return fl_padded(sizeof(int64_t));
}

static size_t keys_bytes(int64_t n)
{
    return fl_padded((size_t)n * sizeof(uint64_t));
}

static fleet_status grad_prepare(fl_device *, fl_queue *, fl_device_step *s)
{
    int64_t n = s->batch * config_of(s)->per_row;

    s->scratch_size = count_bytes() + keys_bytes(n) + fl_sort_scratch(n);
    return FLEET_OK;
}

static int bits_of(int64_t most)
{
    int bits = 1;

    while (most >> bits)
        bits++;
    return bits;
}

static fleet_status grad(fl_device *d, fl_queue *q, const fl_device_step *s)
{
    const fl_embedding_config *c = config_of(s);
    int64_t n = s->batch * c->per_row;
    char *at = static_cast<char *>(s->scratch);
    int64_t *count = reinterpret_cast<int64_t *>(at);
    uint64_t *key = reinterpret_cast<uint64_t *>(at + count_bytes());
    char *rest = at + count_bytes() + keys_bytes(n);
    fl_sorted by;

    FL_TRY(d->methods->fill(d, q, s->arg[0].data, 0,
                            (size_t)(c->rows * c->dim) * sizeof(float)));
    FL_TRY(FL_LAUNCH_EACH(keys_of, n, q, key, fl_step_ptr<int64_t>(s, 1), n, *c,
                          count));
    FL_TRY(fl_sort(q, key, count, n, bits_of(c->rows), rest, &by));
    return FL_LAUNCH_EACH(sum_uses, n * c->dim, q, fl_step_f32(s, 0), by,
                          fl_step_f32(s, 2), n, *c);
}

/* --- sequence_pool: out <- x; a thread has a sample ----------------------- */

__global__ static void pool_numbers(float *out, int64_t ld, const float *x,
                                    const int64_t *offsets, int64_t batch,
                                    fleet_combiner combiner)
{
    FL_EACH(i, batch)
    out[i * ld] =
        fl_pool_numbers(x + offsets[i], offsets[i + 1] - offsets[i], combiner);
}

static fleet_status pool_forward(fl_device *, fl_queue *q,
                                 const fl_device_step *s)
{
    const fl_pool_config *c = static_cast<const fl_pool_config *>(s->config);

    return FL_LAUNCH_EACH(pool_numbers, s->batch, q, fl_step_f32(s, 0),
                          s->arg[0].ld, fl_step_f32(s, 1), s->arg[1].offsets,
                          s->batch, c->combiner);
}

extern const fl_device_kernel fl_cuda_embedding[];
const fl_device_kernel fl_cuda_embedding[] = {
    FL_KERNEL("embedding", forward),
    FL_KERNEL_WITH("embedding.grad", 0, grad_prepare, nullptr, grad),
    FL_KERNEL("sequence_pool", pool_forward),
    FL_KERNEL_END,
};
