/* rendezvous_seal.c - seals by libsodium: X25519, BLAKE2b, and its secretstream
 * of XChaCha20 and Poly1305. */
#include "collective/rendezvous/rendezvous_seal.h"

#include <sodium.h>
#include <string.h>

#include "base/memory.h"

#define MORE crypto_secretstream_xchacha20poly1305_ABYTES

_Static_assert(FL_RANK_KEY == crypto_scalarmult_BYTES, "X25519");
_Static_assert(FL_SEAL_HEAD ==
                   crypto_secretstream_xchacha20poly1305_HEADERBYTES,
               "secretstream");
_Static_assert(FL_SEAL_RECORD == sizeof(uint16_t) + MORE + FL_SEAL_MOST,
               "secretstream");

typedef crypto_secretstream_xchacha20poly1305_state direction;

enum { KEY = crypto_secretstream_xchacha20poly1305_KEYBYTES };

/* Of one direction each. */
typedef struct session {
    uint8_t to_server[KEY], to_rank[KEY];
} session;

struct fl_seal {
    const fl_rank_keys *keys;
    int size, rank;
    uint8_t own[FL_RANK_KEY], secret[FL_RANK_KEY]; /* this connection's */
    session session;
    direction out, in;
    bool has_head; /* `in` has begun */
    uint8_t raw[FL_SEAL_RECORD];
    size_t n_raw;
};

fleet_status fl_seal_create(fl_seal **s, const fl_rank_keys *keys, int size)
{
    *s = NULL;
    if (sodium_init() < 0)
        return fl_fail(FLEET_EUNSUPPORTED, "ranks meet: libsodium finds no "
                                           "source of random numbers");
    FL_TRY(FL_NEW(s, sizeof **s));
    (*s)->keys = keys;
    (*s)->size = size;
    return FLEET_OK;
}

void fl_seal_destroy(fl_seal *s)
{
    if (s)
        sodium_memzero(s, sizeof *s);
    fl_free(s);
}

int fl_seal_rank(const fl_seal *s)
{
    return s->rank;
}

/* --- agreeing on keys ----------------------------------------------------- */

static void draw_key(fl_seal *s)
{
    randombytes_buf(s->secret, sizeof s->secret);
    crypto_scalarmult_base(s->own, s->secret);
    s->n_raw = 0;
    s->has_head = false;
}

/* False: a public key that is none. */
static bool add_product(crypto_generichash_state *hash,
                        const uint8_t secret[FL_RANK_KEY],
                        const uint8_t open[FL_RANK_KEY])
{
    uint8_t product[crypto_scalarmult_BYTES];
    bool ok = crypto_scalarmult(product, secret, open) == 0;

    crypto_generichash_update(hash, product, sizeof product);
    sodium_memzero(product, sizeof product);
    return ok;
}

/* Both sides say the same, each by the secrets that it has. */
static bool make_session(fl_seal *s, const uint8_t theirs[FL_RANK_KEY],
                         bool is_server)
{
    static const uint8_t label[] = "libfleet rendezvous 1";
    const fl_rank_keys *k = s->keys;
    const uint8_t *rank_new = is_server ? theirs : s->own;
    const uint8_t *server_new = is_server ? s->own : theirs;
    const int32_t rank = s->rank;
    crypto_generichash_state hash;
    bool ok;

    crypto_generichash_init(&hash, NULL, 0, sizeof s->session);
    crypto_generichash_update(&hash, label, sizeof label);
    crypto_generichash_update(&hash, (const uint8_t *)&rank, sizeof rank);
    crypto_generichash_update(&hash, k->of[0], FL_RANK_KEY);
    crypto_generichash_update(&hash, k->of[rank], FL_RANK_KEY);
    crypto_generichash_update(&hash, server_new, FL_RANK_KEY);
    crypto_generichash_update(&hash, rank_new, FL_RANK_KEY);
    ok = add_product(&hash, s->secret, theirs);
    if (is_server)
        ok = add_product(&hash, k->secret, theirs) &&
             add_product(&hash, s->secret, k->of[rank]) && ok;
    else
        ok = add_product(&hash, s->secret, k->of[0]) &&
             add_product(&hash, k->secret, theirs) && ok;
    crypto_generichash_final(&hash, (uint8_t *)&s->session, sizeof s->session);
    sodium_memzero(&hash, sizeof hash);
    sodium_memzero(s->secret, sizeof s->secret);
    return ok;
}

/* No key is needed once both directions have begun. */
static void forget_session(fl_seal *s)
{
    sodium_memzero(&s->session, sizeof s->session);
}

bool fl_seal_begin(fl_seal *s, int rank, fl_seal_request *request)
{
    draw_key(s);
    s->rank = rank;
    *request = (fl_seal_request){
        .magic = FL_SEAL_MAGIC, .version = FL_SEAL_VERSION, .rank = rank};
    memcpy(request->key, s->own, sizeof request->key);
    return rank >= 0 && rank < s->size;
}

bool fl_seal_accept(fl_seal *s, const fl_seal_request *request,
                    fl_seal_answer *answer)
{
    if (request->magic != FL_SEAL_MAGIC ||
        request->version != FL_SEAL_VERSION || request->rank < 0 ||
        request->rank >= s->size)
        return false;
    draw_key(s);
    s->rank = request->rank;
    if (!make_session(s, request->key, true))
        return false;
    *answer = (fl_seal_answer){.magic = FL_SEAL_MAGIC};
    memcpy(answer->key, s->own, sizeof answer->key);
    return crypto_secretstream_xchacha20poly1305_init_push(
               &s->out, answer->head, s->session.to_rank) == 0;
}

bool fl_seal_finish(fl_seal *s, const fl_seal_answer *answer,
                    uint8_t head[FL_SEAL_HEAD])
{
    if (answer->magic != FL_SEAL_MAGIC || !make_session(s, answer->key, false))
        return false;
    s->has_head = crypto_secretstream_xchacha20poly1305_init_pull(
                      &s->in, answer->head, s->session.to_rank) == 0 &&
                  crypto_secretstream_xchacha20poly1305_init_push(
                      &s->out, head, s->session.to_server) == 0;
    forget_session(s);
    return s->has_head;
}

/* --- records -------------------------------------------------------------- */

size_t fl_seal_wrap(fl_seal *s, const void *bytes, size_t n,
                    uint8_t record[FL_SEAL_RECORD])
{
    const uint16_t size = (uint16_t)(n + MORE);

    memcpy(record, &size, sizeof size);
    crypto_secretstream_xchacha20poly1305_push(
        &s->out, record + sizeof size, NULL, bytes, n, NULL, 0,
        crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
    return sizeof size + size;
}

/* Of what is under way: the head, a record's length, or all of a record. */
static size_t size_of_raw(const fl_seal *s)
{
    uint16_t size;

    if (!s->has_head)
        return FL_SEAL_HEAD;
    if (s->n_raw < sizeof size)
        return sizeof size;
    memcpy(&size, s->raw, sizeof size);
    return sizeof size + size;
}

uint8_t *fl_seal_room(fl_seal *s, size_t *missing)
{
    *missing = size_of_raw(s) - s->n_raw;
    return s->raw + s->n_raw;
}

static bool begin_opening(fl_seal *s)
{
    s->n_raw = 0;
    s->has_head = crypto_secretstream_xchacha20poly1305_init_pull(
                      &s->in, s->raw, s->session.to_server) == 0;
    forget_session(s);
    return s->has_head;
}

static bool open_record(fl_seal *s, char *bytes, size_t *n)
{
    unsigned long long opened;
    unsigned char tag;
    const uint8_t *sealed = s->raw + sizeof(uint16_t);
    size_t size = s->n_raw - sizeof(uint16_t);

    if (crypto_secretstream_xchacha20poly1305_pull(&s->in, (uint8_t *)bytes,
                                                   &opened, &tag, sealed, size,
                                                   NULL, 0) != 0)
        return false;
    s->n_raw = 0;
    *n += (size_t)opened;
    return true;
}

bool fl_seal_open(fl_seal *s, size_t came, char *bytes, size_t *n)
{
    size_t size;

    s->n_raw += came;
    size = size_of_raw(s);
    if (!s->has_head)
        return s->n_raw < size || begin_opening(s);
    if (s->n_raw >= sizeof(uint16_t) &&
        (size <= sizeof(uint16_t) + MORE || size > sizeof s->raw))
        return false; /* an empty record, or one that is too long */
    return s->n_raw < size || open_record(s, bytes, n);
}
