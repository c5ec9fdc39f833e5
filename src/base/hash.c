/* hash.c - XXH64, by <xxhash.h>; the kernel's random numbers. */
#include "base/hash.h"

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

/* The state's size is known then, so that it needs no heap. */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include <fleet/base.h>

#include "base/clock.h"

_Static_assert(sizeof(XXH64_state_t) <= sizeof(fl_hasher), "state fits");

uint64_t fl_hash(const void *data, size_t size, uint64_t seed)
{
    return XXH64(data, size, seed);
}

void fl_hasher_init(fl_hasher *h, uint64_t seed)
{
    XXH64_reset((XXH64_state_t *)(void *)h, seed);
}

void fl_hasher_add(fl_hasher *h, const void *data, size_t size)
{
    if (size > 0)
        XXH64_update((XXH64_state_t *)(void *)h, data, size);
}

uint64_t fl_hasher_end(const fl_hasher *h)
{
    return XXH64_digest((const XXH64_state_t *)(const void *)h);
}

uint64_t fleet_hash_text(const char *text, size_t length, uint64_t slot)
{
    return XXH64(text, text ? length : 0, slot);
}

uint64_t fl_nonce(void)
{
    int64_t parts[3] = {fl_now_ns(), getpid(), 0};

    if (getrandom(&parts[2], sizeof parts[2], GRND_NONBLOCK) < 0)
        parts[2] = (int64_t)(intptr_t)&parts;
    return fl_hash(parts, sizeof parts, 0);
}

uint64_t fl_secret[2];
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;

static void draw_once(void)
{
    fl_secret[0] = fl_nonce();
    fl_secret[1] = fl_nonce() | 1;
}

void fl_secret_draw(void)
{
    pthread_once(&secret_once, draw_once);
}
