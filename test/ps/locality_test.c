/* locality_test.c - folders for sockets: whose they are at the end. */
#define SUITE locality
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ps/locality.h"

static fl_ipc_folder again_of(const char *path)
{
    fl_ipc_folder f;

    CHECK_OK(fl_ipc_folder_again(&f, path));
    return f;
}

/* After a whole job was started again its servers share one, which none of them
 * has made. */
TEST(a_folder_that_was_made_again_stays_until_its_last_server_goes)
{
    char path[] = "/tmp/libfleet-XXXXXX", socket[60];
    fl_ipc_folder a, b;
    FILE *f;

    unsetenv("FLEET_IPC_FOLDER");
    CHECK(mkdtemp(path) != NULL);
    a = again_of(path);
    b = again_of(path);
    snprintf(socket, sizeof socket, "%s/of-b", path);
    f = fopen(socket, "w");
    CHECK(f && fclose(f) == 0);
    fl_ipc_folder_close(&a);
    CHECK(access(socket, F_OK) == 0);
    CHECK(unlink(socket) == 0);
    fl_ipc_folder_close(&b);
    CHECK(access(path, F_OK) != 0);
}
