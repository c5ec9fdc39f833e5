/* cold_pages.c - spots taken and left; images of pages. */
#include "runtime/cold/cold_pages.h"

#include "base/memory.h"

/* What a page is: an image of it is filled or waits; it is in p->spare. */
enum { FL_PAGE_HAS_IMAGE = 1, FL_PAGE_IS_SPARE = 2 };

enum { SECTOR = 512 };

static int count_bits(uint64_t x)
{
    return __builtin_popcountll(x);
}

static uint64_t all_spots(const fl_cold_pages *p)
{
    return p->n_spot == FL_COLD_MOST_SPOTS ? UINT64_MAX
                                           : ((uint64_t)1 << p->n_spot) - 1;
}

int fl_cold_spots_of_page(size_t spot_bytes)
{
    size_t n = FL_COLD_PAGE_BYTES / spot_bytes;

    return n < 1 ? 1 : n > FL_COLD_MOST_SPOTS ? FL_COLD_MOST_SPOTS : (int)n;
}

void fl_cold_pages_init(fl_cold_pages *p, size_t spot_bytes, int n_spot,
                        int most_waits, atomic_uint_least64_t *n_extent)
{
    size_t bytes = (size_t)n_spot * spot_bytes;

    *p = (fl_cold_pages){.spot_bytes = spot_bytes,
                         .n_spot = n_spot,
                         .most_waits = most_waits,
                         .n_extent = n_extent};
    p->page_bytes = (bytes + SECTOR - 1) / SECTOR * SECTOR;
}

/* --- images --------------------------------------------------------------- */

static void free_image(fl_cold_image *m)
{
    if (m)
        fl_free(m->bytes);
    fl_free(m);
}

static void free_images(fl_cold_image *m)
{
    while (m) {
        fl_cold_image *next = m->next;

        free_image(m);
        m = next;
    }
}

void fl_cold_pages_done(fl_cold_pages *p)
{
    free_image(p->open);
    free_images(p->waits);
    free_images(p->unused);
    fl_free(p->live);
    fl_free(p->newest);
    fl_free(p->is);
    fl_free(p->extent);
    fl_free(p->spare);
    fl_free(p->hole);
    fl_cold_pages_init(p, p->spot_bytes, p->n_spot, p->most_waits, p->n_extent);
}

static fleet_status new_image(fl_cold_pages *p, fl_cold_image **m)
{
    fleet_status status;

    *m = p->unused;
    if (*m) {
        p->unused = (*m)->next;
        return FLEET_OK;
    }
    FL_TRY(FL_NEW(m, sizeof **m));
    status = FL_NEW(&(*m)->bytes, p->page_bytes);
    if (status != FLEET_OK)
        fl_free(*m);
    else
        p->n_image++;
    return status;
}

static void keep_image(fl_cold_pages *p, fl_cold_image *m)
{
    m->next = p->unused;
    p->unused = m;
}

/* --- pages ---------------------------------------------------------------- */

static bool is_half_empty(const fl_cold_pages *p, uint32_t page)
{
    return count_bits(p->live[page]) <= p->n_spot / 2;
}

/* It is to be filled again. Without memory for the list it is not, until its
 * next row goes. */
static void offer(fl_cold_pages *p, uint32_t page)
{
    if (p->is[page] != 0 || !is_half_empty(p, page) ||
        fl_grow(&p->spare, &p->spare_capacity, p->n_spare + 1,
                sizeof *p->spare) != FLEET_OK)
        return;
    p->is[page] |= FL_PAGE_IS_SPARE;
    p->spare[p->n_spare++] = page;
}

static bool take_spare(fl_cold_pages *p, uint32_t *page)
{
    if (p->n_spare == 0)
        return false;
    *page = p->spare[--p->n_spare];
    p->is[*page] = 0;
    return true;
}

static fleet_status add_page(fl_cold_pages *p, uint32_t *page)
{
    size_t extents = p->n / FL_COLD_EXTENT;

    if (p->n >= UINT32_MAX / FL_COLD_MOST_SPOTS)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%u pages of %zu bytes in one part of a file", p->n,
                       p->page_bytes);
    FL_TRY(fl_grow(&p->live, &p->live_capacity, (size_t)p->n + 1,
                   sizeof *p->live));
    FL_TRY(fl_grow(&p->newest, &p->newest_capacity, (size_t)p->n + 1,
                   sizeof *p->newest));
    FL_TRY(fl_grow(&p->is, &p->is_capacity, (size_t)p->n + 1, sizeof *p->is));
    FL_TRY(fl_grow(&p->extent, &p->extent_capacity, extents + 1,
                   sizeof *p->extent));
    if (p->n % FL_COLD_EXTENT == 0)
        p->extent[extents] = (uint32_t)atomic_fetch_add(p->n_extent, 1);
    *page = p->n++;
    p->live[*page] = p->newest[*page] = 0;
    p->is[*page] = 0;
    return FLEET_OK;
}

static fleet_status open_page(fl_cold_pages *p)
{
    fl_cold_image *m;
    fleet_status status;

    FL_TRY(new_image(p, &m));
    if (!take_spare(p, &m->page)) {
        status = add_page(p, &m->page);
        if (status != FLEET_OK) {
            keep_image(p, m);
            return status;
        }
    }
    m->next = NULL;
    m->has = 0;
    m->room = all_spots(p) & ~p->live[m->page];
    if (p->live[m->page] == 0)
        p->newest[m->page] = 0;
    p->is[m->page] = FL_PAGE_HAS_IMAGE;
    p->open = m;
    return FLEET_OK;
}

static void close_page(fl_cold_pages *p)
{
    fl_cold_image **last = &p->waits;

    while (*last)
        last = &(*last)->next;
    *last = p->open;
    p->open = NULL;
    p->n_waits++;
}

/* --- spots ---------------------------------------------------------------- */

fleet_status fl_cold_pages_take(fl_cold_pages *p, uint32_t *spot, char **bytes)
{
    fl_cold_image *m;
    int i;

    *bytes = NULL;
    if (!p->open && p->n_waits >= p->most_waits)
        return FLEET_OK;
    if (!p->open)
        FL_TRY(open_page(p));
    m = p->open;
    i = __builtin_ctzll(m->room);
    m->room &= m->room - 1;
    m->has |= (uint64_t)1 << i;
    p->live[m->page] |= (uint64_t)1 << i;
    *spot = fl_cold_spot(m->page, i);
    *bytes = m->bytes + (size_t)i * p->spot_bytes;
    if (m->room == 0)
        close_page(p);
    return FLEET_OK;
}

void fl_cold_pages_changed(fl_cold_pages *p, uint32_t spot, uint64_t version)
{
    uint64_t *newest = &p->newest[fl_cold_page_of(spot)];

    *newest = version > *newest ? version : *newest;
}

bool fl_cold_pages_may_have(const fl_cold_pages *p, uint32_t spot,
                            uint64_t since)
{
    return p->newest[fl_cold_page_of(spot)] > since;
}

static void leave_now(fl_cold_pages *p, uint32_t spot)
{
    uint32_t page = fl_cold_page_of(spot);

    p->live[page] &= ~((uint64_t)1 << fl_cold_in_page(spot));
    offer(p, page);
}

/* Without memory to remember it, a spot that is read stays taken. */
void fl_cold_pages_leave(fl_cold_pages *p, uint32_t spot)
{
    if (p->n_reader == 0)
        leave_now(p, spot);
    else if (fl_grow(&p->hole, &p->hole_capacity, p->n_hole + 1,
                     sizeof *p->hole) == FLEET_OK)
        p->hole[p->n_hole++] = spot;
}

void fl_cold_pages_read(fl_cold_pages *p)
{
    p->n_reader++;
}

void fl_cold_pages_was_read(fl_cold_pages *p)
{
    if (--p->n_reader > 0)
        return;
    for (size_t i = 0; i < p->n_hole; i++)
        leave_now(p, p->hole[i]);
    p->n_hole = 0;
}

const char *fl_cold_pages_find(const fl_cold_pages *p, uint32_t spot)
{
    uint32_t page = fl_cold_page_of(spot);
    int i = fl_cold_in_page(spot);
    const fl_cold_image *m = p->open;

    if (!(p->is[page] & FL_PAGE_HAS_IMAGE))
        return NULL;
    if (!m || m->page != page)
        for (m = p->waits; m && m->page != page;)
            m = m->next;
    return m && m->has >> i & 1 ? m->bytes + (size_t)i * p->spot_bytes : NULL;
}

void fl_cold_pages_written(fl_cold_pages *p)
{
    fl_cold_image *m = p->waits;

    p->waits = m->next;
    p->n_waits--;
    p->is[m->page] = 0;
    offer(p, m->page);
    keep_image(p, m);
}

int64_t fl_cold_pages_offset(const fl_cold_pages *p, uint32_t spot)
{
    uint32_t page = fl_cold_page_of(spot);
    int64_t at = (int64_t)p->extent[page / FL_COLD_EXTENT] * FL_COLD_EXTENT +
                 page % FL_COLD_EXTENT;

    return at * (int64_t)p->page_bytes +
           (int64_t)fl_cold_in_page(spot) * (int64_t)p->spot_bytes;
}

size_t fl_cold_pages_memory(const fl_cold_pages *p)
{
    return p->live_capacity * sizeof *p->live +
           p->newest_capacity * sizeof *p->newest + p->is_capacity +
           p->extent_capacity * sizeof *p->extent +
           p->spare_capacity * sizeof *p->spare +
           p->hole_capacity * sizeof *p->hole +
           (size_t)p->n_image * (sizeof(fl_cold_image) + p->page_bytes);
}
