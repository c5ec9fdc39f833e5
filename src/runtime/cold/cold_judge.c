/* cold_judge.c - all rows of a table with a cap are judged, where they are: of
 * the file a run of spots at a time, which is read, changed and written back to
 * its place. */
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "runtime/cold/cold_internal.h"
#include "runtime/store/live_hash.h"

typedef struct judging {
    fl_cold_table *t;
    fl_cold_part *p;
    fl_row_judge *judge;
    void *arg;
    char *page;      /* room for one */
    uint32_t *leave; /* places whose rows are to go into the file */
    size_t n_leave, leave_capacity;
    bool gone; /* a row went, or left the memory */
} judging;

/* --- in memory ------------------------------------------------------------ */

/* What an accessor counts of it may change. */
static fl_row_verdict judge_row(const judging *j, uint64_t key,
                                fl_row_head *row)
{
    const fl_rows *r = &j->t->rows;
    float *w = (float *)(void *)(row + 1);
    fl_row_verdict verdict;

    fl_live_hash_out(r, &key, &w, 1);
    verdict = j->judge(j->arg, row);
    if (verdict != FL_ROW_GOES)
        fl_live_hash_in(r, &key, &w, 1);
    return verdict;
}

/* A row that a token has stays where it is. */
static fleet_status judge_places(judging *j)
{
    const uint32_t places = j->p->n_chunk << j->t->chunk_shift;

    j->n_leave = 0;
    for (uint32_t i = 0; i < places; i++) {
        fl_cold_place *at = fl_cold_place_of(j->t, j->p, i);
        fl_row_verdict verdict;

        if (fl_cold_place_is(at) != FL_PLACE_HAS_ROW)
            continue;
        verdict = judge_row(j, at->key, fl_cold_place_row(at));
        if (verdict == FL_ROW_GOES) {
            fl_cold_place_erase(j->t, j->p, i);
            j->gone = true;
        }
        if (verdict != FL_ROW_IS_COLD || at->pins > 0)
            continue;
        FL_TRY(fl_grow(&j->leave, &j->leave_capacity, j->n_leave + 1,
                       sizeof *j->leave));
        j->leave[j->n_leave++] = i;
    }
    return FLEET_OK;
}

/* As many images wait to be written as may: until they are, or cannot be. Under
 * the lock. */
static void wait_for_images(const judging *j)
{
    j->p->tries_again = j->p->stuck;
    pthread_mutex_unlock(&j->p->lock);
    fl_cold_wake(j->t, 1u << fl_cold_part_number(j->t, j->p));
    fl_cold_wait_idle(j->t);
    pthread_mutex_lock(&j->p->lock);
}

/* Their room is not needed: where the disk takes no more, they stay. */
static fleet_status leave_places(judging *j)
{
    for (size_t i = 0; i < j->n_leave; i++) {
        bool went;

        FL_TRY(fl_cold_place_evict(j->t, j->p, j->leave[i], &went));
        if (!went) {
            wait_for_images(j);
            FL_TRY(fl_cold_place_evict(j->t, j->p, j->leave[i], &went));
        }
        if (!went)
            break;
        j->gone = true;
    }
    return FLEET_OK;
}

/* --- in the file ---------------------------------------------------------- */

/* The row of a spot, with its head; true: its bytes have changed. */
static bool judge_spot(judging *j, uint32_t spot, fl_cold_head *head)
{
    const uint64_t before = head->check;
    const uint64_t hash = fl_mix(head->key);

    if (judge_row(j, head->key, (fl_row_head *)(void *)(head + 1)) ==
        FL_ROW_GOES) {
        fl_cold_index_remove(&j->p->index, fl_cold_group(j->t, hash),
                             fl_cold_tag(hash), spot);
        fl_cold_pages_leave(&j->p->pages, spot);
        j->gone = true;
        return false;
    }
    fl_cold_seal(j->t, fl_cold_part_number(j->t, j->p), spot, head);
    return head->check != before;
}

/* n rows in the file from that spot on. */
static fleet_status judge_run(judging *j, uint32_t spot, int n)
{
    const size_t size = j->p->pages.spot_bytes;
    const int64_t at = fl_cold_pages_offset(&j->p->pages, spot);
    bool changed = false;
    int e;

    FL_TRY(fl_cold_read_run(j->t, fl_cold_part_number(j->t, j->p), spot, n,
                            j->page));
    for (int i = 0; i < n; i++)
        changed |=
            judge_spot(j, spot + (uint32_t)i,
                       (fl_cold_head *)(void *)(j->page + (size_t)i * size));
    if (!changed)
        return FLEET_OK;
    e = fl_disk_write_at(j->t->fd, j->page, (size_t)n * size, at);
    return e ? fl_fail(FLEET_EIO,
                       "table \"%s\": cannot write rows back into a file in "
                       "\"%s\": %s: some rows of it have changed",
                       j->t->rows.name, j->t->cap.folder, strerror(e))
             : FLEET_OK;
}

/* The spots of a page that have rows: one by one in an image, in runs in the
 * file. */
static fleet_status judge_page(judging *j, uint32_t page)
{
    fl_cold_pages *pages = &j->p->pages;
    uint64_t live = pages->live[page];

    for (int i = 0; i < pages->n_spot;) {
        const uint32_t spot = fl_cold_spot(page, i);
        const char *image;
        int n = 0;

        if (!(live >> i & 1)) {
            i++;
            continue;
        }
        image = fl_cold_pages_find(pages, spot);
        if (image) {
            judge_spot(j, spot, (fl_cold_head *)(uintptr_t)image);
            i++;
            continue;
        }
        while (i + n < pages->n_spot && live >> (i + n) & 1 &&
               !fl_cold_pages_find(pages, fl_cold_spot(page, i + n)))
            n++;
        FL_TRY(judge_run(j, spot, n));
        i += n;
    }
    return FLEET_OK;
}

/* --- all of it ------------------------------------------------------------ */

/* Rows that leave the memory are judged before, and not once more. */
static fleet_status judge_part(judging *j)
{
    fleet_status status = FLEET_OK;

    pthread_mutex_lock(&j->p->lock);
    for (uint32_t i = 0; i < j->p->pages.n && status == FLEET_OK; i++)
        status = judge_page(j, i);
    if (status == FLEET_OK)
        status = judge_places(j);
    if (status == FLEET_OK)
        status = leave_places(j);
    pthread_mutex_unlock(&j->p->lock);
    return status;
}

fleet_status fl_cold_judge(fl_rows *r, fl_row_judge *judge, void *arg)
{
    judging j = {.t = fl_cold_of(r), .judge = judge, .arg = arg};
    fleet_status status = FL_NEW(&j.page, j.t->part[0].pages.page_bytes);

    fl_cold_wait_idle(j.t);
    for (int i = 0; i < FL_N_PART && status == FLEET_OK; i++) {
        j.p = &j.t->part[i];
        status = judge_part(&j);
    }
    if (j.gone)
        fl_rows_next_epoch(r);
    fl_free(j.page);
    fl_free(j.leave);
    return status;
}
