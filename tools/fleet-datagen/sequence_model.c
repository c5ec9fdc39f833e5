/* sequence_model.c - draws of histories, labels, and how likely items are. */
#include "sequence_model.h"

#include <math.h>

#include "base/rng_draw.h"
#include "hidden_id.h"

/* Sequences of the seed: of lines, of what is the same in all of them, and one
 * for each place of a history; the item's is behind them. */
enum {
    OF_LINES = 10,
    OF_CLICKS,
    OF_WORTHS,
    OF_TOPICS = 5 << 16,
    OF_ITEMS = 6 << 16,
    PLACE_OF_ITEM = MOST_HISTORY
};

/* Of z's variance. */
static const double SHARE_OF_LIKING = 0.8;

/* An item: the rank-th of its topic. */
typedef struct topic_item {
    int topic;
    int64_t rank;
} topic_item;

static int below(uint32_t word, int n)
{
    return (int)((uint64_t)word * (uint64_t)n >> 32);
}

static int64_t number_of(const sequence_model *m, topic_item i)
{
    return i.rank * m->topics + i.topic;
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

/* The constant by which so many labels are 1, where every second item is liked;
 * a sigmoid is flatter in the mean over a normal worth (MacKay 1992). */
static double find_base(const sequence_model *m)
{
    const double worth = m->share_worth * m->share_worth;
    const double flat = sqrt(1 + 3.14159265358979 / 8 * worth);
    double low = -100, high = 100;

    for (int i = 0; i < 60; i++) {
        const double z = (low + high) / 2;
        const double share = (sigmoid((z + m->share_liked) / flat) +
                              sigmoid((z - m->share_liked) / flat)) /
                             2;

        *(share < m->positive ? &low : &high) = z;
    }
    return low;
}

void sequence_model_begin(sequence_model *m)
{
    m->in_topic = (zipf){.n = m->n_id / m->topics, .exponent = m->exponent};
    zipf_begin(&m->in_topic);
    m->log_sum = log(zipf_sum(&m->in_topic) * m->topics);
    m->share_liked = m->signal * sqrt(SHARE_OF_LIKING);
    m->share_worth = m->signal * sqrt(1 - SHARE_OF_LIKING);
    m->base = find_base(m);
}

/* --- histories ------------------------------------------------------------ */

static int behind(const sequence_model *m, int topic)
{
    return (topic + 1) % m->topics;
}

/* The topic of what follows n items. */
static int draw_topic(const sequence_model *m, uint64_t number, int place,
                      const topic_item *item, int n)
{
    fl_rng4 r = fl_rng_block(m->seed, (uint64_t)(OF_TOPICS + place), number);

    if (n == 0 || fl_rng_unit(r.v[0]) >= (float)m->follow)
        return below(r.v[1], m->topics);
    return m->rule == RULE_NEXT ? behind(m, item[n - 1].topic)
                                : item[below(r.v[1], n)].topic;
}

static int64_t draw_rank(const sequence_model *m, uint64_t number, int place)
{
    return zipf_draw(&m->in_topic, m->seed, (uint64_t)(OF_ITEMS + place),
                     number);
}

static int64_t id_of(const sequence_model *m, topic_item i)
{
    return hidden_id(m->seed, 0, number_of(m, i));
}

static void draw_history(const sequence_model *m, uint64_t number,
                         topic_item *item, sequence_line *to)
{
    fl_rng4 r = fl_rng_block(m->seed, OF_LINES, number);

    to->n = 1 + below(r.v[0], m->most);
    for (int i = 0; i < to->n; i++) {
        item[i] = (topic_item){draw_topic(m, number, i, item, i),
                               draw_rank(m, number, i)};
        to->history[i] = id_of(m, item[i]);
    }
}

/* --- clicks --------------------------------------------------------------- */

static bool is_liked(const sequence_model *m, const topic_item *item, int n,
                     int topic)
{
    if (m->rule == RULE_NEXT)
        return topic == behind(m, item[n - 1].topic);
    for (int i = 0; i < n; i++)
        if (item[i].topic == topic)
            return true;
    return false;
}

static int count_topics(const sequence_model *m, const topic_item *item, int n)
{
    static bool seen[MOST_TOPIC];
    int found = 0;

    for (int i = 0; i < n; i++) {
        found += !seen[item[i].topic];
        seen[item[i].topic] = true;
    }
    for (int i = 0; i < n; i++)
        seen[item[i].topic] = false;
    return m->rule == RULE_NEXT ? 1 : found;
}

/* A topic that is liked, or one that is not, if there is any: each attempt has
 * a block of its own. */
static int draw_wanted(const sequence_model *m, uint64_t number,
                       const topic_item *item, int n, bool wanted)
{
    if (wanted || count_topics(m, item, n) == m->topics) {
        fl_rng4 r = fl_rng_block(m->seed, OF_CLICKS, number);

        return m->rule == RULE_NEXT ? behind(m, item[n - 1].topic)
                                    : item[below(r.v[2], n)].topic;
    }
    for (uint64_t attempt = 0;; attempt++) {
        fl_rng4 r = fl_rng_block(m->seed, OF_CLICKS, number + (attempt << 48));
        const int topic = below(r.v[2], m->topics);

        if (!is_liked(m, item, n, topic))
            return topic;
    }
}

static void draw_click(const sequence_model *m, uint64_t number,
                       const topic_item *item, sequence_line *to)
{
    fl_rng4 r = fl_rng_block(m->seed, OF_CLICKS, number), words;
    topic_item i = {draw_wanted(m, number, item, to->n, r.v[0] >> 31),
                    draw_rank(m, number, PLACE_OF_ITEM)};
    double worth[4], z;

    words = fl_rng_block(m->seed, OF_WORTHS, (uint64_t)number_of(m, i));
    fl_rng_normal_words(&words, worth);
    z = m->base + m->share_worth * worth[0];
    z += is_liked(m, item, to->n, i.topic) ? m->share_liked : -m->share_liked;
    to->item = id_of(m, i);
    to->probability = sigmoid(z);
    to->label = ((double)r.v[1] + 0.5) * 0x1p-32 < to->probability;
}

/* --- pairs ---------------------------------------------------------------- */

/* How likely a topic is that follows from `count` of n items. */
static double weight_of(const sequence_model *m, int count, int n)
{
    return (1 - m->follow) / m->topics + m->follow * count / n;
}

/* Of a topic that is `times` as likely as that of an item: those of its items
 * that are likelier than it, and as likely. Ranks below x are:
 * times * (rank + 1)^-exponent > (i.rank + 1)^-exponent. */
static void count_above(const sequence_model *m, double times, int64_t rank,
                        int64_t topics, sequence_line *to)
{
    const double n = (double)m->in_topic.n;
    double x, whole;

    if (m->exponent == 0) {
        to->above += times > 1 + 1e-12 ? topics * m->in_topic.n : 0;
        to->ties += fabs(times - 1) <= 1e-12 ? topics * m->in_topic.n : 0;
        return;
    }
    x = ((double)rank + 1) * pow(times, 1 / m->exponent);
    whole = floor(x + 0.5);
    if (whole >= 1 && whole <= n && fabs(x - whole) < 1e-9 * x) {
        to->ties += topics;
        x = whole - 1;
    }
    to->above += topics * (int64_t)fmin(floor(x), n);
}

/* Topics that the history has equally often are as likely. */
static void find_place(const sequence_model *m, const topic_item *item,
                       topic_item i, sequence_line *to)
{
    static int of_topic[MOST_TOPIC], with_count[MOST_HISTORY + 1];
    const int n = m->rule == RULE_NEXT ? 1 : to->n;
    double own;

    for (int k = 0; k < n; k++)
        of_topic[m->rule == RULE_NEXT ? behind(m, item[to->n - 1].topic)
                                      : item[k].topic]++;
    own = weight_of(m, of_topic[i.topic], n);
    for (int topic = 0; topic < m->topics; topic++) {
        with_count[of_topic[topic]]++;
        of_topic[topic] = 0;
    }
    to->above = to->ties = 0;
    for (int count = 0; count <= n; count++) {
        if (with_count[count] > 0)
            count_above(m, weight_of(m, count, n) / own, i.rank,
                        with_count[count], to);
        with_count[count] = 0;
    }
}

static void draw_pair(const sequence_model *m, uint64_t number,
                      const topic_item *item, sequence_line *to)
{
    topic_item i = {draw_topic(m, number, PLACE_OF_ITEM, item, to->n),
                    draw_rank(m, number, PLACE_OF_ITEM)};

    to->item = id_of(m, i);
    to->log_q = -m->exponent * log((double)i.rank + 1) - m->log_sum;
    find_place(m, item, i, to);
}

void sequence_model_line(const sequence_model *m, uint64_t number,
                         sequence_line *to)
{
    static topic_item item[MOST_HISTORY];

    draw_history(m, number, item, to);
    if (m->pairs)
        draw_pair(m, number, item, to);
    else
        draw_click(m, number, item, to);
}
