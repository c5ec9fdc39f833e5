/* feed_offset.c - how far a subscriber is, as a text: a sum, then nine numbers
 * for each lane. */
#include "ps/feed/feed_offset.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"
#include "ps/feed/feed_internal.h"

enum { WORDS = sizeof(fl_feed_position) / sizeof(uint64_t) };
static const char offset_head[] = "fleet-feed-1";

static uint64_t sum_of(const fl_feed_position *p, int n)
{
    return fl_hash(p, (size_t)n * sizeof *p, (uint64_t)n);
}

char *fl_feed_offset_text(const fl_feed_client *c)
{
    int n = c->n_lane > 0 ? c->n_lane : c->n_resumed;
    fl_feed_position *all = fl_alloc_array((size_t)n + 1, sizeof *all);
    fl_text text = {0};

    if (!all)
        return NULL;
    for (int i = 0; i < n; i++)
        all[i] = c->n_lane > 0 ? c->lane[i].position : c->resumed[i];
    fl_text_add(&text, "%s:%016" PRIx64, offset_head, sum_of(all, n));
    for (int i = 0; i < n; i++) {
        uint64_t word[WORDS];

        memcpy(word, &all[i], sizeof word);
        fl_text_add(&text, ":");
        for (int j = 0; j < WORDS; j++)
            fl_text_add(&text, "%s%" PRIx64, j ? "," : "", word[j]);
    }
    fl_free(all);
    if (text.status == FLEET_OK)
        return text.chars;
    fl_text_done(&text);
    return NULL;
}

static bool read_word(const char **at, char end, uint64_t *word)
{
    int n = 0;

    *word = 0;
    for (; **at && strchr("0123456789abcdef", **at) && n < 16; ++*at, n++)
        *word =
            *word << 4 | (uint64_t)(**at <= '9' ? **at - '0' : **at - 'a' + 10);
    if (n == 0 || (**at != end && !(end == ':' && **at == 0)))
        return false;
    *at += **at != 0;
    return true;
}

static bool read_positions(const char *at, fl_feed_position *all, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t word[WORDS];

        for (int j = 0; j < WORDS; j++)
            if (!read_word(&at, j + 1 < WORDS ? ',' : ':', &word[j]))
                return false;
        memcpy(&all[i], word, sizeof word);
    }
    return *at == 0;
}

static int count_positions(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == ':';
    return n;
}

fleet_status fl_feed_offset_resume(fl_feed_client *c, const char *offset)
{
    size_t head = sizeof offset_head - 1;
    const char *at = offset + head + 1;
    uint64_t sum;
    int n;

    if (strncmp(offset, offset_head, head) != 0 || offset[head] != ':' ||
        !read_word(&at, ':', &sum))
        return fl_fail(FLEET_EFORMAT,
                       "the offset of a feed: expected \"%s:...\", got "
                       "\"%.40s\"",
                       offset_head, offset);
    n = *at ? count_positions(at) + 1 : 0;
    if (n > FL_MOST_SERVER * FL_MOST_LANE)
        return fl_fail(FLEET_EFORMAT, "the offset of a feed has %d lanes", n);
    FL_TRY(FL_NEW(&c->resumed, ((size_t)n + 1) * sizeof *c->resumed));
    if (!read_positions(at, c->resumed, n) || sum_of(c->resumed, n) != sum)
        return fl_fail(FLEET_EFORMAT,
                       "the offset of a feed is damaged: its sum is not that "
                       "of what it says");
    c->n_resumed = n;
    return FLEET_OK;
}
