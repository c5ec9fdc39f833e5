/* cold_places.c - rows in memory: places found by key, taken, and given up by
 * rows that go into the file. */
#include <string.h>

#include "base/memory.h"
#include "runtime/cold/cold_internal.h"
#include "runtime/cold/cold_memory.h"

enum { LEAST_SLOTS = 16, LEAST_PLACES = 4 };
enum { DRAINED = 2 }; /* rows that leave the last chunk, for each one taken */

/* --- by key --------------------------------------------------------------- */

static uint32_t first_slot(const fl_cold_part *p, uint64_t hash)
{
    return (uint32_t)fl_mix_secretly(hash) & (p->n_slot - 1);
}

static uint32_t slot_with(const fl_cold_table *t, const fl_cold_part *p,
                          uint64_t key, uint64_t hash)
{
    uint32_t i = first_slot(p, hash);

    while (p->slot[i] && fl_cold_place_of(t, p, p->slot[i] - 1)->key != key)
        i = (i + 1) & (p->n_slot - 1);
    return i;
}

fl_cold_place *fl_cold_place_find(const fl_cold_table *t, const fl_cold_part *p,
                                  uint64_t key, uint64_t hash, uint32_t *number)
{
    uint32_t i;

    if (p->n_slot == 0)
        return NULL;
    i = slot_with(t, p, key, hash);
    if (p->slot[i] == 0)
        return NULL;
    *number = p->slot[i] - 1;
    return fl_cold_place_of(t, p, *number);
}

static fleet_status widen_slots(const fl_cold_table *t, fl_cold_part *p)
{
    uint32_t n_old = p->n_slot, *old = p->slot;
    uint32_t n = n_old ? 2 * n_old : LEAST_SLOTS;

    if (n_old && (p->n_keyed + 1) * 4 <= n_old * 3)
        return FLEET_OK;
    p->slot = fl_alloc_array(n, sizeof *p->slot);
    if (!p->slot) {
        p->slot = old;
        return FLEET_ENOMEM;
    }
    p->n_slot = n;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i]) {
            uint64_t key = fl_cold_place_of(t, p, old[i] - 1)->key;

            p->slot[slot_with(t, p, key, fl_mix(key))] = old[i];
        }
    fl_free(old);
    return FLEET_OK;
}

/* Slots behind the gap, up to an empty one, come nearer to their first ones. */
void fl_cold_place_forget_key(const fl_cold_table *t, fl_cold_part *p,
                              uint32_t number)
{
    uint64_t key = fl_cold_place_of(t, p, number)->key;
    uint32_t mask = p->n_slot - 1;
    uint32_t gap = slot_with(t, p, key, fl_mix(key));

    for (uint32_t i = (gap + 1) & mask; p->slot[i]; i = (i + 1) & mask) {
        uint64_t other = fl_cold_place_of(t, p, p->slot[i] - 1)->key;

        if (((i - first_slot(p, fl_mix(other))) & mask) < ((i - gap) & mask))
            continue;
        p->slot[gap] = p->slot[i];
        gap = i;
    }
    p->slot[gap] = 0;
    p->n_keyed--;
}

/* --- chunks --------------------------------------------------------------- */

/* All but the places. */
static size_t memory_beside(const fl_cold_part *p)
{
    return sizeof *p + p->chunk_capacity * sizeof *p->chunk +
           p->used_capacity * sizeof *p->used +
           p->free_capacity * sizeof *p->free + p->n_slot * sizeof *p->slot +
           p->read_capacity * sizeof *p->read + fl_cold_index_bytes(&p->index) +
           fl_cold_pages_memory(&p->pages);
}

static size_t chunk_bytes(const fl_cold_table *t)
{
    return t->place_bytes << t->chunk_shift;
}

size_t fl_cold_memory(const fl_cold_table *t, const fl_cold_part *p)
{
    return memory_beside(p) + p->n_chunk * fl_cold_memory_of(chunk_bytes(t));
}

void fl_cold_set_most(const fl_cold_table *t, fl_cold_part *p)
{
    const fl_cold_pages *g = &p->pages;
    size_t images = (size_t)(g->most_waits + 1 - g->n_image) * g->page_bytes;
    size_t taken = memory_beside(p) + images; /* that are to come */
    size_t left = t->part_bytes > taken ? t->part_bytes - taken : 0;
    size_t n = left / fl_cold_memory_of(chunk_bytes(t)) << t->chunk_shift;

    p->most_places = n < LEAST_PLACES          ? LEAST_PLACES
                     : n > 1u << FL_PLACE_BITS ? 1u << FL_PLACE_BITS
                                               : (uint32_t)n;
}

static uint32_t chunk_places(const fl_cold_table *t)
{
    return 1u << t->chunk_shift;
}

/* The index has grown: the last chunk is one too many. */
static bool must_drain(const fl_cold_table *t, const fl_cold_part *p)
{
    return p->n_chunk > 1 && p->n_chunk << t->chunk_shift > p->most_places;
}

static fleet_status add_chunk(fl_cold_table *t, fl_cold_part *p)
{
    uint32_t n = p->n_chunk, first = n << t->chunk_shift;
    char *chunk;

    FL_TRY(fl_grow(&p->chunk, &p->chunk_capacity, n + 1, sizeof *p->chunk));
    FL_TRY(fl_grow(&p->used, &p->used_capacity, n + 1, sizeof *p->used));
    FL_TRY(fl_grow(&p->free, &p->free_capacity, first + chunk_places(t),
                   sizeof *p->free));
    chunk = fl_cold_memory_new(chunk_bytes(t));
    if (!chunk)
        return FLEET_ENOMEM;
    p->chunk[n] = chunk;
    p->used[n] = 0;
    p->n_chunk++;
    for (uint32_t i = chunk_places(t); i-- > 0;)
        p->free[p->n_free++] = first + i;
    return FLEET_OK;
}

static void drop_chunk(const fl_cold_table *t, fl_cold_part *p)
{
    uint32_t first = (p->n_chunk - 1) << t->chunk_shift;
    size_t n = 0;

    for (size_t i = 0; i < p->n_free; i++)
        if (p->free[i] < first)
            p->free[n++] = p->free[i];
    p->n_free = n;
    fl_cold_memory_free(p->chunk[--p->n_chunk], chunk_bytes(t));
    p->hand = p->hand < first ? p->hand : 0;
}

void fl_cold_places_done(fl_cold_table *t, fl_cold_part *p)
{
    while (p->n_chunk > 0)
        drop_chunk(t, p);
    fl_free(p->chunk);
    fl_free(p->used);
    fl_free(p->free);
    fl_free(p->slot);
    p->chunk = NULL;
    p->used = p->free = p->slot = NULL;
    p->chunk_capacity = p->used_capacity = p->free_capacity = 0;
    p->n_slot = p->n_keyed = p->n_row = 0;
}

/* --- free, taken ---------------------------------------------------------- */

void fl_cold_place_free(fl_cold_table *t, fl_cold_part *p, uint32_t number)
{
    fl_cold_place_becomes(fl_cold_place_of(t, p, number), FL_PLACE_FREE);
    p->used[number >> t->chunk_shift]--;
    p->free[p->n_free++] = number;
}

static bool pop_free(const fl_cold_table *t, fl_cold_part *p, uint32_t *number)
{
    uint32_t below = (p->n_chunk - must_drain(t, p)) << t->chunk_shift;
    size_t i = p->n_free;

    while (i > 0 && p->free[i - 1] >= below)
        i--;
    if (i == 0)
        return false;
    *number = p->free[i - 1];
    p->free[i - 1] = p->free[--p->n_free];
    return true;
}

/* --- rows go -------------------------------------------------------------- */

fleet_status fl_cold_place_evict(fl_cold_table *t, fl_cold_part *p,
                                 uint32_t number, bool *went)
{
    fl_cold_place *at = fl_cold_place_of(t, p, number);
    uint64_t hash = fl_mix(at->key);
    fl_cold_head *head;
    fleet_status status;
    uint32_t spot;
    char *bytes;

    *went = false;
    FL_TRY(fl_cold_pages_take(&p->pages, &spot, &bytes));
    if (!bytes)
        return FLEET_OK;
    status = fl_cold_index_put(&p->index, fl_cold_group(t, hash),
                               fl_cold_tag(hash), spot);
    if (status != FLEET_OK) {
        fl_cold_pages_leave(&p->pages, spot);
        return status;
    }
    head = (fl_cold_head *)(void *)bytes;
    head->key = at->key;
    memcpy(head + 1, fl_cold_place_row(at), t->row_bytes);
    fl_cold_seal(t, fl_cold_part_number(t, p), spot, head);
    if (fl_cold_place_row(at)->changed_at > p->newest)
        p->newest = fl_cold_place_row(at)->changed_at;
    fl_cold_pages_changed(&p->pages, spot, fl_cold_place_row(at)->changed_at);
    fl_cold_place_forget_key(t, p, number);
    fl_cold_place_free(t, p, number);
    p->n_row--;
    p->counts.evicted++;
    *went = true;
    return FLEET_OK;
}

/* A row of places first .. end-1 that may go, the next one that was not used
 * since the clock came by; false: none may. */
static bool find_victim(const fl_cold_table *t, fl_cold_part *p, uint32_t first,
                        uint32_t end, uint32_t *number)
{
    for (uint32_t i = 0; i < 2 * (end - first); i++) {
        fl_cold_place *at;

        if (p->hand < first || p->hand >= end)
            p->hand = first;
        *number = p->hand++;
        at = fl_cold_place_of(t, p, *number);
        if (fl_cold_place_is(at) != FL_PLACE_HAS_ROW || at->pins > 0)
            continue;
        if (!at->used)
            return true;
        at->used = false;
    }
    return false;
}

static fleet_status evict_one(fl_cold_table *t, fl_cold_part *p, uint32_t first,
                              uint32_t end, bool *went)
{
    uint32_t number;

    *went = false;
    return find_victim(t, p, first, end, &number)
               ? fl_cold_place_evict(t, p, number, went)
               : FLEET_OK;
}

static fleet_status drain(fl_cold_table *t, fl_cold_part *p, bool *gone)
{
    uint32_t first = (p->n_chunk - 1) << t->chunk_shift;
    uint32_t hand = p->hand;
    bool went = true;

    for (int i = 0; i < DRAINED && went; i++) {
        FL_TRY(evict_one(t, p, first, first + chunk_places(t), &went));
        *gone = *gone || went;
    }
    p->hand = hand;
    if (p->used[p->n_chunk - 1] == 0)
        drop_chunk(t, p);
    return FLEET_OK;
}

/* A free place; *number UINT32_MAX: none. */
static fleet_status find_free(fl_cold_table *t, fl_cold_part *p,
                              uint32_t *number, bool *gone)
{
    bool went = false;

    if (must_drain(t, p))
        FL_TRY(drain(t, p, gone));
    if (pop_free(t, p, number))
        return FLEET_OK;
    fl_cold_set_most(t, p);
    if (p->n_chunk == 0 || (p->n_chunk + 1) << t->chunk_shift <= p->most_places)
        FL_TRY(add_chunk(t, p));
    else
        FL_TRY(evict_one(
            t, p, 0, (p->n_chunk - must_drain(t, p)) << t->chunk_shift, &went));
    *gone = *gone || went;
    if (!pop_free(t, p, number))
        *number = UINT32_MAX;
    return FLEET_OK;
}

fleet_status fl_cold_place_take(fl_cold_table *t, fl_cold_part *p, uint64_t key,
                                uint64_t hash, fl_cold_place **at,
                                uint32_t *number, bool *gone)
{
    *at = NULL;
    FL_TRY(widen_slots(t, p));
    FL_TRY(find_free(t, p, number, gone));
    if (*number == UINT32_MAX)
        return FLEET_OK;
    p->used[*number >> t->chunk_shift]++;
    *at = fl_cold_place_of(t, p, *number);
    (*at)->key = key;
    (*at)->pins = 0;
    (*at)->used = true;
    p->slot[slot_with(t, p, key, hash)] = *number + 1;
    p->n_keyed++;
    return FLEET_OK;
}
