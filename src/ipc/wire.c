/* SPDX-License-Identifier: Apache-2.0 */
#include "wire.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "control.h"
#include "error.h"

/* --- reading JSON from a peer: a missing or wrong member is an error that names it */

static int bad(const char *member, const char *what)
{
    return tsi_fail(TSOCKET_EPROTOCOL, "message: \"%s\" %s", member, what);
}

static cJSON *parse(const char *text, size_t len)
{
    cJSON *json = cJSON_ParseWithLength(text, len);

    if (!cJSON_IsObject(json)) {
        tsi_fail(TSOCKET_EPROTOCOL, "message: not a JSON object");
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}

/* A string of printable ASCII that fits; a missing one is empty if `optional`. */
static int get_text(const cJSON *json, const char *member, bool optional, char *out, size_t room)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, member);

    out[0] = '\0';
    if (item == NULL && optional)
        return TSOCKET_OK;
    if (!cJSON_IsString(item))
        return bad(member, "is missing or not a string");
    if (strlen(item->valuestring) >= room)
        return bad(member, "is too long");
    for (const char *c = item->valuestring; *c != '\0'; c++) {
        if (*c < 0x20 || *c > 0x7e)
            return bad(member, "has characters that are not printable ASCII");
    }
    strcpy(out, item->valuestring);
    return TSOCKET_OK;
}

static int get_number(const cJSON *json, const char *member, uint64_t low, uint64_t high, uint64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, member);
    double value;

    if (!cJSON_IsNumber(item))
        return bad(member, "is missing or not a number");
    value = item->valuedouble;
    /* the comparison also refuses NaN; past it, the conversion is exact */
    if (!(value >= 0 && value <= (double)TSI_NUMBER_MAX) || floor(value) != value)
        return bad(member, "is not a whole number that fits");
    if ((uint64_t)value < low || (uint64_t)value > high)
        return bad(member, "is outside its limits");
    *out = (uint64_t)value;
    return TSOCKET_OK;
}

static int get_u32(const cJSON *json, const char *member, uint32_t low, uint32_t high, uint32_t *out)
{
    uint64_t value = 0;
    int rc = get_number(json, member, low, high, &value);

    if (rc == TSOCKET_OK)
        *out = (uint32_t)value;
    return rc;
}

static int get_bool(const cJSON *json, const char *member, bool *out)
{
    uint32_t value = 0;
    int rc = get_u32(json, member, 0, 1, &value);

    *out = value != 0;
    return rc;
}

static int check_name(const char *member, const char *name, bool optional)
{
    if (tsi_name_ok(name) || (optional && name[0] == '\0'))
        return TSOCKET_OK;
    return bad(member, "is not a possible name");
}

/* NULL where memory was too short for one of the members: half a message is worse than none. */
static char *print_and_delete(cJSON *json, int members)
{
    char *text = cJSON_GetArraySize(json) == members ? cJSON_PrintUnformatted(json) : NULL;

    cJSON_Delete(json);
    return text;
}

/* In digits: cJSON itself prints a number of 16 digits only nearly. */
static void add_number(cJSON *json, const char *member, uint64_t value)
{
    char digits[24];

    snprintf(digits, sizeof(digits), "%" PRIu64, value);
    cJSON_AddRawToObject(json, member, digits);
}

/* --- greeting */

char *tsi_greeting_pack(const struct tsi_greeting *greeting)
{
    cJSON *json = cJSON_CreateObject();

    add_number(json, "protocol", TSI_PROTOCOL);
    if (greeting->refused[0] != '\0') {
        cJSON_AddStringToObject(json, "refused", greeting->refused);
        return print_and_delete(json, 2);
    }
    cJSON_AddStringToObject(json, "socket", greeting->socket);
    cJSON_AddStringToObject(json, "token", greeting->token);
    add_number(json, "gpu", greeting->gpu);
    return print_and_delete(json, 4);
}

int tsi_greeting_unpack(const char *text, size_t len, struct tsi_greeting *greeting_out)
{
    struct tsi_greeting greeting = {.refused = ""};
    cJSON *json = parse(text, len);
    uint64_t protocol = 0;
    int rc;

    if (json == NULL)
        return TSOCKET_EPROTOCOL;
    rc = get_number(json, "protocol", 0, UINT32_MAX, &protocol);
    if (rc == TSOCKET_OK && protocol != TSI_PROTOCOL)
        rc = tsi_fail(TSOCKET_EPROTOCOL,
                      "the daemon speaks protocol %u, this library %u; use tsocketd and libtsocket of one version",
                      (unsigned)protocol, (unsigned)TSI_PROTOCOL);
    if (rc == TSOCKET_OK)
        rc = get_text(json, "refused", true, greeting.refused, sizeof(greeting.refused));
    if (rc == TSOCKET_OK && greeting.refused[0] == '\0') {
        rc = get_text(json, "socket", false, greeting.socket, sizeof(greeting.socket));
        if (rc == TSOCKET_OK)
            rc = get_text(json, "token", false, greeting.token, sizeof(greeting.token));
        if (rc == TSOCKET_OK)
            rc = get_bool(json, "gpu", &greeting.gpu);
    }
    cJSON_Delete(json);
    if (rc == TSOCKET_OK)
        *greeting_out = greeting;
    return rc;
}

/* --- hello, and whatever else is said to a daemon */

static bool is(const struct tsi_hello *hello, const char *type)
{
    return strcmp(hello->type, type) == 0;
}

static bool has_place(const struct tsi_hello *hello)
{
    return is(hello, "PLACE") || is(hello, "PAUSE");
}

static char *pack_place(cJSON *json, const struct tsi_hello *hello)
{
    add_number(json, "epoch", hello->place.epoch);
    add_number(json, "index", hello->place.index);
    add_number(json, "removed", hello->place.removed);
    add_number(json, "number", hello->number);
    add_number(json, "again", hello->again);
    return print_and_delete(json, 7);
}

static char *pack_setting(cJSON *json, const struct tsi_hello *hello)
{
    cJSON_AddStringToObject(json, "stream", hello->stream);
    cJSON_AddStringToObject(json, "name", hello->name);
    cJSON_AddStringToObject(json, "setting", hello->setting);
    return print_and_delete(json, 5);
}

char *tsi_hello_pack(const struct tsi_hello *hello)
{
    cJSON *json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "type", hello->type);
    cJSON_AddStringToObject(json, "token", hello->token);
    if (has_place(hello))
        return pack_place(json, hello);
    if (is(hello, "SET"))
        return pack_setting(json, hello);
    if (!is(hello, "HELLO"))
        return print_and_delete(json, 2);
    cJSON_AddStringToObject(json, "stream", hello->stream);
    cJSON_AddStringToObject(json, "name", hello->name);
    cJSON_AddStringToObject(json, "fields", hello->fields);
    cJSON_AddStringToObject(json, "device", hello->device);
    add_number(json, "batch", hello->batch);
    add_number(json, "hold", hello->hold);
    add_number(json, "rank", hello->rank);
    add_number(json, "world", hello->world);
    add_number(json, "join", (uint64_t)hello->join);
    add_number(json, "last", (uint64_t)hello->last);
    add_number(json, "on_lag", (uint64_t)hello->on_lag);
    add_number(json, "max_lag", hello->max_lag);
    cJSON_AddStringToObject(json, "resume", hello->resume);
    return print_and_delete(json, 15);
}

static int get_hello_numbers(const cJSON *json, struct tsi_hello *hello)
{
    uint32_t join = 0, last = 0, on_lag = 0;
    int rc = get_u32(json, "batch", 1, UINT32_MAX, &hello->batch);

    if (rc == TSOCKET_OK)
        rc = get_u32(json, "hold", 1, TSI_HOLD_MAX, &hello->hold);
    if (rc == TSOCKET_OK)
        rc = get_u32(json, "world", 1, TSI_WORLD_MAX, &hello->world);
    if (rc == TSOCKET_OK)
        rc = get_u32(json, "rank", 0, hello->world - 1, &hello->rank);
    if (rc == TSOCKET_OK)
        rc = get_u32(json, "join", TSOCKET_JOIN_WAIT, TSOCKET_JOIN_CATCH_UP, &join);
    if (rc == TSOCKET_OK)
        rc = get_u32(json, "last", TSOCKET_LAST_KEEP, TSOCKET_LAST_PAD, &last);
    if (rc == TSOCKET_OK)
        rc = get_u32(json, "on_lag", TSOCKET_LAG_PARK, TSOCKET_LAG_DETACH, &on_lag);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "max_lag", 0, TSI_NUMBER_MAX, &hello->max_lag);
    hello->on_lag = (enum tsocket_on_lag)on_lag;
    hello->join = (enum tsocket_join)join;
    hello->last = (enum tsocket_last)last;
    return rc;
}

static int get_hello_body(const cJSON *json, struct tsi_hello *hello)
{
    int rc = get_text(json, "stream", true, hello->stream, sizeof(hello->stream));

    if (rc == TSOCKET_OK)
        rc = check_name("stream", hello->stream, true);
    if (rc == TSOCKET_OK)
        rc = get_text(json, "name", true, hello->name, sizeof(hello->name));
    if (rc == TSOCKET_OK)
        rc = get_text(json, "fields", true, hello->fields, sizeof(hello->fields));
    if (rc == TSOCKET_OK)
        rc = get_text(json, "device", true, hello->device, sizeof(hello->device));
    if (rc == TSOCKET_OK)
        rc = get_text(json, "resume", true, hello->resume, sizeof(hello->resume));
    if (rc == TSOCKET_OK)
        rc = get_hello_numbers(json, hello);
    return rc;
}

static int get_place(const cJSON *json, struct tsi_hello *hello)
{
    int rc = get_number(json, "epoch", 0, TSI_NUMBER_MAX, &hello->place.epoch);

    if (rc == TSOCKET_OK)
        rc = get_number(json, "index", 0, TSI_NUMBER_MAX, &hello->place.index);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "removed", 0, TSI_NUMBER_MAX, &hello->place.removed);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "number", 0, TSI_NUMBER_MAX, &hello->number);
    if (rc == TSOCKET_OK)
        rc = get_bool(json, "again", &hello->again);
    return rc;
}

static int get_setting(const cJSON *json, struct tsi_hello *hello)
{
    int rc = get_text(json, "stream", true, hello->stream, sizeof(hello->stream));

    if (rc == TSOCKET_OK)
        rc = check_name("stream", hello->stream, true);
    if (rc == TSOCKET_OK)
        rc = get_text(json, "name", false, hello->name, sizeof(hello->name));
    if (rc == TSOCKET_OK)
        rc = get_text(json, "setting", false, hello->setting, sizeof(hello->setting));
    return rc;
}

int tsi_hello_unpack(const char *text, size_t len, struct tsi_hello *hello_out)
{
    struct tsi_hello hello = {.type = ""};
    cJSON *json = parse(text, len);
    int rc;

    if (json == NULL)
        return TSOCKET_EPROTOCOL;
    rc = get_text(json, "type", false, hello.type, sizeof(hello.type));
    if (rc == TSOCKET_OK)
        rc = get_text(json, "token", false, hello.token, sizeof(hello.token));
    if (rc == TSOCKET_OK && is(&hello, "HELLO"))
        rc = get_hello_body(json, &hello);
    else if (rc == TSOCKET_OK && has_place(&hello))
        rc = get_place(json, &hello);
    else if (rc == TSOCKET_OK && is(&hello, "SET"))
        rc = get_setting(json, &hello);
    cJSON_Delete(json);
    if (rc == TSOCKET_OK)
        *hello_out = hello;
    return rc;
}

/* --- welcome */

/* Whether everything found memory. */
static bool add_field(cJSON *array, const struct tsocket_field *field)
{
    cJSON *item = cJSON_CreateObject();
    cJSON *shape = cJSON_AddArrayToObject(item, "shape");

    cJSON_AddStringToObject(item, "name", field->name);
    cJSON_AddStringToObject(item, "dtype", tsocket_dtype_name(field->dtype));
    for (uint32_t d = 0; d < field->ndim && shape != NULL; d++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)field->shape[d]));
    cJSON_AddItemToArray(array, item);
    return cJSON_GetArraySize(item) == 3 && cJSON_GetArraySize(shape) == (int)field->ndim;
}

static void add_fields(cJSON *json, const struct tsi_layout *layout)
{
    cJSON *array = cJSON_AddArrayToObject(json, "fields");
    bool whole = array != NULL;

    for (uint32_t i = 0; i < layout->n_fields && whole; i++)
        whole = add_field(array, &layout->fields[i]);
    if (!whole)
        cJSON_DeleteItemFromObject(json, "fields"); /* one member too few, then */
}

static char *pack_refusal(cJSON *json, int error, const char *reason)
{
    cJSON_AddStringToObject(json, "code", tsocket_errname(error));
    cJSON_AddStringToObject(json, "reason", reason);
    return print_and_delete(json, 3);
}

char *tsi_welcome_pack(const struct tsi_welcome *welcome)
{
    cJSON *json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "type", welcome->refused != TSOCKET_OK ? "REFUSED" : "WELCOME");
    if (welcome->refused != TSOCKET_OK)
        return pack_refusal(json, welcome->refused, welcome->reason);
    cJSON_AddStringToObject(json, "daemon", welcome->daemon);
    cJSON_AddStringToObject(json, "stream", welcome->stream);
    add_fields(json, &welcome->layout);
    add_number(json, "capacity", welcome->layout.capacity);
    add_number(json, "mirror", welcome->layout.mirror);
    add_number(json, "epoch_samples", welcome->epoch_samples);
    add_number(json, "epochs", welcome->epochs);
    add_number(json, "epoch", welcome->epoch);
    add_number(json, "first", welcome->first);
    add_number(json, "position", welcome->position);
    add_number(json, "from", welcome->from.index);
    add_number(json, "removed", welcome->from.removed);
    add_number(json, "seat", welcome->seat);
    add_number(json, "side", welcome->side);
    add_number(json, "catch_up", welcome->catch_up);
    add_number(json, "resident", welcome->resident);
    cJSON_AddStringToObject(json, "origin", welcome->origin);
    cJSON_AddStringToObject(json, "arena", welcome->arena);
    return print_and_delete(json, 19);
}

static enum tsocket_dtype dtype_from(const char *name)
{
    for (enum tsocket_dtype dtype = TSOCKET_UINT8; tsocket_dtype_bytes(dtype) > 0; dtype++) {
        if (strcmp(name, tsocket_dtype_name(dtype)) == 0)
            return dtype;
    }
    return (enum tsocket_dtype)0; /* tsi_layout_init refuses it */
}

static int get_field(const cJSON *item, struct tsocket_field *field)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    const cJSON *extent;
    char dtype[16];
    int rc = get_text(item, "name", false, field->name, sizeof(field->name));

    if (rc == TSOCKET_OK)
        rc = get_text(item, "dtype", false, dtype, sizeof(dtype));
    if (rc != TSOCKET_OK)
        return rc;
    field->dtype = dtype_from(dtype);
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > TSOCKET_NDIM_MAX)
        return bad("shape", "is missing or has too many dimensions");
    cJSON_ArrayForEach(extent, shape)
    {
        if (!cJSON_IsNumber(extent) || !(extent->valuedouble >= 1 && extent->valuedouble <= (double)TSI_NUMBER_MAX))
            return bad("shape", "has a dimension that is not a number that fits");
        field->shape[field->ndim++] = (uint64_t)extent->valuedouble;
    }
    return TSOCKET_OK;
}

static int get_layout(const cJSON *json, struct tsi_layout *layout_out)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(json, "fields");
    struct tsocket_field fields[TSOCKET_FIELDS_MAX] = {{.name = ""}};
    uint64_t capacity = 0, mirror = 0;
    uint32_t n = 0;
    const cJSON *item;
    int rc = get_number(json, "capacity", 1, TSI_CAPACITY_MAX, &capacity);

    if (rc == TSOCKET_OK)
        rc = get_number(json, "mirror", 1, capacity, &mirror);
    if (rc == TSOCKET_OK && (!cJSON_IsArray(array) || cJSON_GetArraySize(array) > TSOCKET_FIELDS_MAX))
        rc = bad("fields", "is missing or has too many entries");
    if (rc != TSOCKET_OK)
        return rc;
    cJSON_ArrayForEach(item, array)
    {
        rc = get_field(item, &fields[n++]);
        if (rc != TSOCKET_OK)
            return rc;
    }
    return tsi_layout_init(fields, n, capacity, mirror, layout_out) == TSOCKET_OK ? TSOCKET_OK : TSOCKET_EPROTOCOL;
}

static int error_from(const char *name)
{
#define TSI_ERROR_FROM(symbol, value, text)                                                                            \
    if (strcmp(name, &#symbol[sizeof("TSOCKET_") - 1]) == 0 && (value) != TSOCKET_OK)                                  \
        return value;
    TSOCKET_ERRORS(TSI_ERROR_FROM)
#undef TSI_ERROR_FROM
    return TSOCKET_EREFUSED;
}

static int get_refusal(const cJSON *json, int *error_out, char reason[TSI_REASON_MAX])
{
    char code[32];
    int rc = get_text(json, "code", false, code, sizeof(code));

    if (rc == TSOCKET_OK)
        rc = get_text(json, "reason", false, reason, TSI_REASON_MAX);
    if (rc == TSOCKET_OK)
        *error_out = error_from(code);
    return rc;
}

static int get_welcome(const cJSON *json, struct tsi_welcome *welcome)
{
    int rc = get_text(json, "daemon", false, welcome->daemon, sizeof(welcome->daemon));

    if (rc == TSOCKET_OK)
        rc = get_text(json, "stream", false, welcome->stream, sizeof(welcome->stream));
    if (rc == TSOCKET_OK)
        rc = check_name("daemon", welcome->daemon, false);
    if (rc == TSOCKET_OK)
        rc = check_name("stream", welcome->stream, false);
    if (rc == TSOCKET_OK)
        rc = get_layout(json, &welcome->layout);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "epoch_samples", 0, TSI_NUMBER_MAX, &welcome->epoch_samples);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "epochs", 0, TSI_NUMBER_MAX, &welcome->epochs);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "epoch", 0, TSI_NUMBER_MAX, &welcome->epoch);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "first", 0, TSI_NUMBER_MAX, &welcome->first);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "position", 0, TSI_NUMBER_MAX, &welcome->position);
    if (rc == TSOCKET_OK && welcome->first > welcome->position)
        rc = bad("first", "is behind the position it belongs to");
    if (rc == TSOCKET_OK)
        rc = get_number(json, "from", 0, TSI_NUMBER_MAX, &welcome->from.index);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "removed", 0, TSI_NUMBER_MAX, &welcome->from.removed);
    if (rc == TSOCKET_OK && welcome->from.index > welcome->first)
        rc = bad("from", "is behind the place where the consumer begins");
    welcome->from.epoch = welcome->epoch;
    if (rc == TSOCKET_OK)
        rc = get_u32(json, "seat", 0, TSI_SEATS - 1, &welcome->seat);
    if (rc == TSOCKET_OK)
        rc = get_bool(json, "side", &welcome->side);
    if (rc == TSOCKET_OK)
        rc = get_bool(json, "catch_up", &welcome->catch_up);
    if (rc == TSOCKET_OK)
        rc = get_bool(json, "resident", &welcome->resident);
    if (rc == TSOCKET_OK)
        rc = get_text(json, "origin", false, welcome->origin, sizeof(welcome->origin));
    if (rc == TSOCKET_OK)
        rc = get_text(json, "arena", false, welcome->arena, sizeof(welcome->arena));
    return rc;
}

int tsi_welcome_unpack(const char *text, size_t len, struct tsi_welcome *welcome_out)
{
    struct tsi_welcome welcome = {.refused = TSOCKET_OK};
    cJSON *json = parse(text, len);
    char type[16];
    int rc;

    if (json == NULL)
        return TSOCKET_EPROTOCOL;
    rc = get_text(json, "type", false, type, sizeof(type));
    if (rc == TSOCKET_OK && strcmp(type, "REFUSED") == 0)
        rc = get_refusal(json, &welcome.refused, welcome.reason);
    else if (rc == TSOCKET_OK && strcmp(type, "WELCOME") == 0)
        rc = get_welcome(json, &welcome);
    else if (rc == TSOCKET_OK)
        rc = bad("type", "is neither WELCOME nor REFUSED");
    cJSON_Delete(json);
    if (rc == TSOCKET_OK)
        *welcome_out = welcome;
    return rc;
}

/* --- move */

char *tsi_move_pack(const struct tsi_move *move)
{
    cJSON *json = cJSON_CreateObject();

    cJSON_AddStringToObject(json, "type", move->refused != TSOCKET_OK ? "REFUSED" : "MOVE");
    if (move->refused != TSOCKET_OK)
        return pack_refusal(json, move->refused, move->reason);
    add_number(json, "number", move->number);
    add_number(json, "ring", move->ring);
    add_number(json, "memory", move->memory);
    add_number(json, "capacity", move->capacity);
    add_number(json, "max_lag", move->max_lag);
    cJSON_AddStringToObject(json, "arena", move->arena);
    return print_and_delete(json, 7);
}

static int get_move(const cJSON *json, struct tsi_move *move)
{
    int rc = get_number(json, "number", 0, TSI_NUMBER_MAX, &move->number);

    if (rc == TSOCKET_OK)
        rc = get_u32(json, "ring", 0, UINT32_MAX, &move->ring);
    if (rc == TSOCKET_OK)
        rc = get_bool(json, "memory", &move->memory);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "capacity", 1, TSI_CAPACITY_MAX, &move->capacity);
    if (rc == TSOCKET_OK)
        rc = get_number(json, "max_lag", 0, TSI_NUMBER_MAX, &move->max_lag);
    if (rc == TSOCKET_OK)
        rc = get_text(json, "arena", false, move->arena, sizeof(move->arena));
    return rc;
}

int tsi_move_unpack(const char *text, size_t len, struct tsi_move *move_out)
{
    struct tsi_move move = {.refused = TSOCKET_OK};
    cJSON *json = parse(text, len);
    char type[16];
    int rc;

    if (json == NULL)
        return TSOCKET_EPROTOCOL;
    rc = get_text(json, "type", false, type, sizeof(type));
    if (rc == TSOCKET_OK && strcmp(type, "REFUSED") == 0) {
        rc = get_refusal(json, &move.refused, move.reason);
    } else if (rc == TSOCKET_OK && strcmp(type, "MOVE") == 0) {
        rc = get_move(json, &move);
    } else if (rc == TSOCKET_OK) {
        rc = bad("type", "is neither MOVE nor REFUSED");
    }
    cJSON_Delete(json);
    if (rc == TSOCKET_OK)
        *move_out = move;
    return rc;
}
