/* cold_each.c - walks over all rows of a table with a cap: bucket by bucket, of
 * each what is in memory and what is in the file. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "runtime/cold/cold_internal.h"

/* --- a part's rows in memory, by bucket ----------------------------------- */

typedef struct fl_bucket_place {
    int bucket;
    uint32_t place;
} fl_bucket_place;

static int by_bucket(const void *a, const void *b)
{
    return ((const fl_bucket_place *)a)->bucket -
           ((const fl_bucket_place *)b)->bucket;
}

/* *list is for fl_free(). */
static fleet_status list_places(const fl_cold_table *t, const fl_cold_part *p,
                                fl_bucket_place **list, size_t *n)
{
    fl_bucket_place *l = fl_alloc_array((size_t)p->n_row + 1, sizeof *l);

    *list = l;
    *n = 0;
    if (!l)
        return FLEET_ENOMEM;
    for (uint32_t i = 0; i < p->n_chunk << t->chunk_shift; i++) {
        const fl_cold_place *at = fl_cold_place_of(t, p, i);

        if (fl_cold_place_is(at) == FL_PLACE_HAS_ROW)
            l[(*n)++] = (fl_bucket_place){fl_bucket_of(fl_mix(at->key)), i};
    }
    qsort(l, *n, sizeof *l, by_bucket);
    return FLEET_OK;
}

/* --- a bucket's rows in the file ------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

uint32_t fl_cold_list_spots(const fl_cold_table *t, const fl_cold_part *p,
                            int bucket, uint32_t *list)
{
    const fl_cold_index *x = &p->index;
    uint32_t in_part = (uint32_t)bucket % (FL_N_BUCKET / FL_N_PART);
    uint32_t first = in_part << t->group_shift, n = 0;

    for (uint32_t g = first; g < first + (1u << t->group_shift); g++)
        for (uint32_t i = 0; i < x->n[g]; i++, n++)
            if (list)
                list[n] = x->entry[x->first[g] + i].spot;
    if (list)
        qsort(list, n, sizeof *list, by_number);
    return n;
}

/* The spots that fl_cold_list_spots() lists, without pages that cannot have
 * what the walk wants: these are not read. */
static uint32_t list_wanted(const fl_cold_table *t, const fl_cold_part *p,
                            int bucket, uint32_t *list, const fl_table_walk *w)
{
    uint32_t all = fl_cold_list_spots(t, p, bucket, list), n = 0;

    if (w->all)
        return all;
    for (uint32_t i = 0; i < all; i++)
        if (fl_cold_pages_may_have(&p->pages, list[i], w->since))
            list[n++] = list[i];
    return n;
}

/* Rows of spots, with their heads, into bytes: from images, and in batches from
 * the file. */
static fleet_status read_rows(const fl_cold_table *t, const fl_cold_part *p,
                              const uint32_t *spot, uint32_t n, char *bytes)
{
    size_t size = p->pages.spot_bytes;
    fleet_status status[FL_COLD_BATCH];
    int64_t at[FL_COLD_BATCH];

    for (uint32_t i = 0; i < n;) {
        const char *image = fl_cold_pages_find(&p->pages, spot[i]);
        int m = 0;

        if (image) {
            memcpy(bytes + i++ * size, image, size);
            continue;
        }
        while (m < FL_COLD_BATCH && i + (uint32_t)m < n &&
               !fl_cold_pages_find(&p->pages, spot[i + (uint32_t)m])) {
            at[m] = fl_cold_pages_offset(&p->pages, spot[i + (uint32_t)m]);
            m++;
        }
        fl_cold_read_spots(t, fl_cold_part_number(t, p), spot + i, at, m,
                           bytes + i * size, status);
        for (int j = 0; j < m; j++)
            FL_TRY(status[j]);
        i += (uint32_t)m;
    }
    return FLEET_OK;
}

/* --- walks ---------------------------------------------------------------- */

/* The rows of a bucket: entry has n of them, which are in memory. */
static fleet_status visit_rows(const fl_cold_table *t, const fl_cold_part *p,
                               int bucket, fl_row_entry *entry, int64_t n,
                               const uint32_t *spot, uint32_t n_cold,
                               const fl_table_walk *w)
{
    size_t size = p->pages.spot_bytes;
    char *bytes = fl_alloc_array(n_cold, size);
    fleet_status status =
        bytes ? read_rows(t, p, spot, n_cold, bytes) : FLEET_ENOMEM;

    for (uint32_t i = 0; status == FLEET_OK && i < n_cold; i++) {
        const fl_cold_head *head =
            (const fl_cold_head *)(const void *)(bytes + i * size);

        entry[n++] = (fl_row_entry){
            head->key, (const fl_row_head *)(const void *)(head + 1)};
    }
    if (status == FLEET_OK)
        status = fl_table_visit(entry, n, bucket, w);
    fl_free(bytes);
    return status;
}

static fleet_status walk_bucket(const fl_cold_table *t, const fl_cold_part *p,
                                int bucket, const fl_bucket_place *list,
                                size_t n, const fl_table_walk *w)
{
    uint32_t n_cold = fl_cold_list_spots(t, p, bucket, NULL);
    fl_row_entry *entry = fl_alloc_array(n + n_cold + 1, sizeof *entry);
    uint32_t *spot = fl_alloc_array((size_t)n_cold + 1, sizeof *spot);
    fleet_status status = FLEET_ENOMEM;

    if (entry && spot && n + n_cold > 0) {
        n_cold = list_wanted(t, p, bucket, spot, w);
        for (size_t i = 0; i < n; i++) {
            fl_cold_place *at = fl_cold_place_of(t, p, list[i].place);

            entry[i] = (fl_row_entry){at->key, fl_cold_place_row(at)};
        }
        status = visit_rows(t, p, bucket, entry, (int64_t)n, spot, n_cold, w);
    } else if (entry && spot) {
        status = FLEET_OK;
    }
    fl_free(entry);
    fl_free(spot);
    return status;
}

static fleet_status walk_part(const fl_cold_table *t, fl_cold_part *p,
                              const fl_table_walk *w)
{
    const int buckets = FL_N_BUCKET / FL_N_PART;
    int first = fl_cold_part_number(t, p) * buckets;
    fl_bucket_place *list = NULL;
    size_t n = 0, at = 0;
    fleet_status status;

    pthread_mutex_lock(&p->lock);
    status = list_places(t, p, &list, &n);
    for (int b = first; b < first + buckets && status == FLEET_OK; b++) {
        size_t end = at;

        while (end < n && list[end].bucket == b)
            end++;
        status = walk_bucket(t, p, b, list + at, end - at, w);
        at = end;
    }
    pthread_mutex_unlock(&p->lock);
    fl_free(list);
    return status;
}

static fleet_status walk_table(const fl_rows *r, const fl_table_walk *w)
{
    fl_cold_table *t = fl_cold_of(r);

    fl_cold_wait_idle(t);
    for (int i = 0; i < FL_N_PART; i++)
        FL_TRY(walk_part(t, &t->part[i], w));
    return FLEET_OK;
}

fleet_status fl_cold_each(const fl_rows *r, fl_row_visitor *visit, void *arg)
{
    return walk_table(
        r, &(fl_table_walk){.all = true, .visit = visit, .arg = arg});
}

fleet_status fl_cold_each_changed(const fl_rows *r, uint64_t since,
                                  fl_row_visitor *visit, void *arg)
{
    return walk_table(
        r, &(fl_table_walk){.since = since, .visit = visit, .arg = arg});
}

/* --- stat ----------------------------------------------------------------- */

static void add_part(const fl_cold_table *t, const fl_cold_part *p,
                     fl_rows_stat *stat)
{
    const fl_cold_pages *g = &p->pages;
    uint64_t index = p->n_slot * sizeof *p->slot +
                     fl_cold_index_bytes(&p->index) +
                     g->live_capacity * sizeof *g->live +
                     g->newest_capacity * sizeof *g->newest + g->is_capacity;
    uint64_t rows = (uint64_t)p->n_row * t->place_bytes;

    stat->rows += p->n_row + p->index.count;
    stat->cold_rows += p->index.count;
    stat->row_bytes += rows;
    stat->index_bytes += index;
    stat->free_bytes += fl_cold_memory(t, p) - rows - index;
    for (uint32_t i = 0; i < p->n_chunk << t->chunk_shift; i++) {
        fl_cold_place *at = fl_cold_place_of(t, p, i);

        if (fl_cold_place_is(at) == FL_PLACE_HAS_ROW &&
            fl_cold_place_row(at)->changed_at > stat->changed_at)
            stat->changed_at = fl_cold_place_row(at)->changed_at;
    }
    if (p->newest > stat->changed_at)
        stat->changed_at = p->newest;
}

fleet_status fl_cold_stat(const fl_rows *r, fl_rows_stat *stat)
{
    fl_cold_table *t = fl_cold_of(r);
    fl_cold_counts counts;

    *stat = (fl_rows_stat){.epoch = fl_rows_epoch(r)};
    for (int i = 0; i < FL_N_PART; i++) {
        fl_cold_part *p = &t->part[i];

        pthread_mutex_lock(&p->lock);
        add_part(t, p, stat);
        pthread_mutex_unlock(&p->lock);
    }
    fl_cold_count(r, &counts);
    stat->file_bytes = (uint64_t)counts.file_bytes;
    return FLEET_OK;
}
