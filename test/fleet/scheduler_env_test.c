/* scheduler_env_test.c - MindSpore's variables: all of them or none, and no
 * variable of Paddle's beside them. */
#define SUITE scheduler_env
#include "test.h"

#include <stdlib.h>

#include <fleet/fleet.h>

#include "fleet/role/scheduler_env.h"

static void be(const char *role)
{
    setenv("MS_ROLE", role, 1);
    setenv("MS_SCHED_HOST", "10.0.0.1", 1);
    setenv("MS_SCHED_PORT", "8118", 1);
    setenv("MS_SERVER_NUM", "2", 1);
    setenv("MS_WORKER_NUM", "3", 1);
}

static fl_scheduler_env read_env(void)
{
    fl_scheduler_env e;
    bool found;

    CHECK_OK(fl_scheduler_env_read(&e, &found));
    CHECK(found);
    return e;
}

#define REFUSED(code, words)                                                   \
    do {                                                                       \
        fleet *none;                                                           \
                                                                               \
        CHECK_FAILS(fleet_init(&none, NULL), code, words);                     \
    } while (0)

TEST(they_say_the_role_the_scheduler_and_the_numbers)
{
    fl_scheduler_env e;

    be("MS_WORKER");
    e = read_env();
    CHECK(!e.schedules && e.role == FL_SCHEDULED_WORKER);
    CHECK_TEXT(e.address, "tcp://10.0.0.1:8118");
    CHECK_INT(e.num[FL_SCHEDULED_SERVER], 2);
    CHECK_INT(e.num[FL_SCHEDULED_WORKER], 3);
    CHECK_INT(strlen(e.id), 16);
    be("MS_PSERVER");
    CHECK(read_env().role == FL_SCHEDULED_SERVER && !read_env().schedules);
    be("MS_SERVER");
    CHECK(read_env().role == FL_SCHEDULED_SERVER);
    be("MS_SCHED");
    CHECK(read_env().schedules);
    setenv("MS_NODE_ID", "pod-3.a_b", 1);
    CHECK_TEXT(read_env().id, "pod-3.a_b");
    setenv("MS_SCHED_HOST", "fd00::1", 1);
    CHECK_TEXT(read_env().address, "tcp://[fd00::1]:8118");
}

TEST(half_of_them_are_refused)
{
    static const char *const names[] = {"MS_ROLE", "MS_SCHED_HOST",
                                        "MS_SCHED_PORT", "MS_SERVER_NUM",
                                        "MS_WORKER_NUM"};

    for (int i = 0; i < 5; i++) {
        be("MS_WORKER");
        unsetenv(names[i]);
        REFUSED(FLEET_ENOENT, names[i]);
        REFUSED(FLEET_ENOENT, " is not set, but MS_");
    }
}

TEST(malformed_ones_are_refused)
{
    static const struct {
        const char *name, *value, *words;
        fleet_status code;
    } bad[] = {
        {"MS_ROLE", "MS_CLIENT", "expected MS_SCHED, MS_PSERVER, MS_SERVER or",
         FLEET_EUNSUPPORTED},
        {"MS_SCHED_HOST", "a b", "MS_SCHED_HOST:MS_SCHED_PORT", FLEET_EINVAL},
        {"MS_SCHED_PORT", "0", "MS_SCHED_PORT is \"0\"", FLEET_EINVAL},
        {"MS_SERVER_NUM", "0",
         "MS_SERVER_NUM is \"0\": expected an integer "
         "from 1 to 128",
         FLEET_EINVAL},
        {"MS_WORKER_NUM", "x", "MS_WORKER_NUM is \"x\"", FLEET_EINVAL},
        {"MS_NODE_ID", "a b", "MS_NODE_ID is \"a b\"", FLEET_EINVAL}};

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        be("MS_WORKER");
        setenv(bad[i].name, bad[i].value, 1);
        REFUSED(bad[i].code, bad[i].words);
        unsetenv(bad[i].name);
    }
}

TEST(paddles_beside_them_are_refused)
{
    static const char *const names[] = {"PADDLE_PSERVERS_IP_PORT_LIST",
                                        "TRAINING_ROLE",
                                        "PADDLE_TRAINING_ROLE",
                                        "PADDLE_TRAINERS_NUM",
                                        "PADDLE_TRAINER_ID",
                                        "PADDLE_TRAINER_ENDPOINTS",
                                        "PADDLE_CURRENT_ENDPOINT",
                                        "PADDLE_MASTER"};

    be("MS_WORKER");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setenv(names[i], "1", 1);
        REFUSED(FLEET_EINVAL, names[i]);
        REFUSED(FLEET_EINVAL, "but not both");
        unsetenv(names[i]);
    }
    setenv("FLEET_JOIN", "2", 1);
    REFUSED(FLEET_EUNSUPPORTED, "FLEET_JOIN, too: with a scheduler");
    unsetenv("FLEET_JOIN");
    setenv("FLEET_LISTEN_FD", "7", 1);
    REFUSED(FLEET_EUNSUPPORTED, "FLEET_LISTEN_FD, too: with a scheduler");
    unsetenv("FLEET_LISTEN_FD");
    setenv("PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST", "127.0.0.1:7000", 1);
    REFUSED(FLEET_EUNSUPPORTED, "HETER_TRAINER_IP_PORT_LIST, too: with a");
}

TEST(a_scheduler_needs_keys_where_other_machines_reach_it)
{
    fleet *f;

    be("MS_SCHED");
    setenv("MS_SCHED_HOST", "0.0.0.0", 1);
    CHECK_OK(fleet_init(&f, NULL));
    CHECK(fleet_is_server(f));
    CHECK_INT(fleet_server_index(f), -1);
    CHECK_INT(fleet_server_num(f), 2);
    CHECK_INT(fleet_worker_num(f), 3);
    CHECK_FAILS(fleet_init_server(f, NULL), FLEET_EINVAL,
                "the scheduler would listen at tcp://0.0.0.0:8118, which other "
                "machines reach, without keys");
    fleet_destroy(f);
}
