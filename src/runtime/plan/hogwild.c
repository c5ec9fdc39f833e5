/* hogwild.c - the locks of trainer threads that update by themselves, and
 * copies of dense weights under them. */
#include "runtime/plan/hogwild.h"

#include <string.h>

#include "base/memory.h"

fleet_status fl_hogwild_create(int n_table, fl_hogwild **hogwild)
{
    fl_hogwild *h;

    FL_TRY(FL_NEW(hogwild, sizeof *h));
    h = *hogwild;
    h->part = fl_alloc_array((size_t)n_table + 1, sizeof *h->part);
    if (!h->part) {
        fl_free(h);
        *hogwild = NULL;
        return FLEET_ENOMEM;
    }
    for (int i = 0; i < FL_HOGWILD_STRIPES; i++)
        pthread_mutex_init(&h->stripe[i], NULL);
    for (h->n_table = 0; h->n_table < n_table; h->n_table++)
        for (int i = 0; i < FL_N_PART; i++)
            pthread_mutex_init(&h->part[h->n_table][i], NULL);
    return FLEET_OK;
}

void fl_hogwild_destroy(fl_hogwild *h)
{
    if (!h)
        return;
    for (int i = 0; i < FL_HOGWILD_STRIPES; i++)
        pthread_mutex_destroy(&h->stripe[i]);
    for (int t = 0; t < h->n_table; t++)
        for (int i = 0; i < FL_N_PART; i++)
            pthread_mutex_destroy(&h->part[t][i]);
    fl_free(h->part);
    fl_free(h);
}

int64_t fl_hogwild_block_end(int64_t at, int64_t end)
{
    int64_t next = (at / FL_BLOCK + 1) * FL_BLOCK;

    return next < end ? next : end;
}

pthread_mutex_t *fl_hogwild_block(fl_hogwild *h, int64_t at)
{
    return &h->stripe[at / FL_BLOCK % FL_HOGWILD_STRIPES];
}

void fl_hogwild_copy(fl_hogwild *h, const fl_flat *g, float *to)
{
    for (int64_t at = 0, end; at < g->n; at = end) {
        pthread_mutex_t *lock = fl_hogwild_block(h, at);

        end = fl_hogwild_block_end(at, g->n);
        pthread_mutex_lock(lock);
        memcpy(to + at, g->weight + at, (size_t)(end - at) * sizeof *to);
        pthread_mutex_unlock(lock);
    }
}
