/* Decodes and encodes the records of Kafka's record batches (magic 2), uncompressed, from and to the buffers of Arrow
 * arrays.
 *
 *     record   = length varint, attributes int8, timestamp delta varlong, offset delta varint,
 *                key, value, header count varint, headers
 *     key      = length varint (-1: null), bytes; a value likewise
 *     header   = key length varint, key (UTF-8), value
 *
 * Varints are zigzag. Source: kafka.apache.org/documentation, "Record Format".
 *
 * Each direction takes two calls: one measures and checks everything, one writes. A caller allocates in between, so
 * nothing is allocated here, and nothing is read or written outside the given sizes. No global state: the calls may run
 * in many threads. `record_batches/native.py` declares the same structs.
 */
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char source_digest[] = SOURCE_DIGEST; /* of this file; a test compares it with the file that is there */

enum fault {
    NONE = 0,
    TRUNCATED = 1,     /* a record or a part of it ends after the batch, or after its record */
    BAD_LENGTH = 2,    /* a length or count below what is possible, or a record longer than its parts */
    BAD_VARINT = 3,    /* more bytes than its type has */
    LEFT_OVER = 4,     /* bytes after the last record */
    BAD_TIMESTAMP = 5, /* beyond 64 bits */
    BAD_UTF8 = 6,      /* in the key of a header */
    TOO_LARGE = 7,     /* a column of more than 2^31 - 1 bytes or headers */
};

/* ---- reading */

struct totals { /* of the records that were measured */
    int64_t key_bytes, value_bytes, headers, header_key_bytes, header_value_bytes;
    int64_t bad_record; /* the index of the first record with a fault */
    int32_t null_keys, null_values, null_header_values;
    int32_t dense; /* 1: the offset deltas are 0, 1, 2, ... */
};

struct columns { /* the arrays to fill; ends have one number more than their array, validity bitmaps are zero */
    int64_t *timestamps;
    int32_t *offset_deltas;
    int32_t *key_ends;
    uint8_t *keys, *key_validity;
    int32_t *value_ends;
    uint8_t *values, *value_validity;
    int32_t *header_ends;
    int32_t *header_key_ends;
    uint8_t *header_keys;
    int32_t *header_value_ends;
    uint8_t *header_values, *header_value_validity;
};

struct cursor {
    const uint8_t *at, *end;
    enum fault fault;
};

struct piece { /* size -1: null */
    const uint8_t *at;
    int64_t size;
};

static uint64_t unsigned_varint(struct cursor *in, int bits) {
    uint64_t value = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (in->at == in->end) {
            in->fault = TRUNCATED;
            return 0;
        }
        uint64_t byte = *in->at++;
        uint64_t part = byte & 0x7f;
        if (shift + 7 > bits && (part >> (bits - shift)) != 0) break;
        value |= part << shift;
        if (byte < 0x80) return value;
    }
    in->fault = BAD_VARINT;
    return 0;
}

static int64_t varlong(struct cursor *in) {
    uint64_t value = unsigned_varint(in, 64);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

static int32_t varint(struct cursor *in) {
    if (in->at < in->end && *in->at < 0x80) { /* most are one byte */
        uint32_t byte = *in->at++;
        return (int32_t)(byte >> 1) ^ -(int32_t)(byte & 1);
    }
    uint32_t value = (uint32_t)unsigned_varint(in, 32);
    return (int32_t)(value >> 1) ^ -(int32_t)(value & 1);
}

/* A length and that many bytes. `least`: -1 where null is allowed, else 0. */
static struct piece bytes_of(struct cursor *in, int least) {
    int64_t size = varint(in);
    struct piece found = {in->at, size};
    if (in->fault) return found;
    if (size < least) in->fault = BAD_LENGTH;
    else if (size > in->end - in->at) in->fault = TRUNCATED;
    else if (size > 0) in->at += size;
    return found;
}

static int is_utf8(struct piece text) {
    const uint8_t *at = text.at, *end = text.at + text.size;
    while (at < end) {
        uint8_t first = *at++;
        if (first < 0x80) continue;
        int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || end - at < more) return 0;
        uint8_t low = 0x80, high = 0xbf; /* of the second byte: no overlong form, no surrogate, no more than 0x10ffff */
        if (first == 0xe0) low = 0xa0;
        else if (first == 0xed) high = 0x9f;
        else if (first == 0xf0) low = 0x90;
        else if (first == 0xf4) high = 0x8f;
        if (at[0] < low || at[0] > high) return 0;
        for (int i = 1; i < more; i++)
            if ((at[i] & 0xc0) != 0x80) return 0;
        at += more;
    }
    return 1;
}

struct head { /* of a record */
    const uint8_t *end;
    int64_t timestamp_delta;
    int32_t offset_delta;
    struct piece key, value;
    int32_t headers;
};

/* Reads a record up to its headers; then `in` ends where the record ends. */
static struct head head_of(struct cursor *in) {
    struct head found = {0};
    int64_t size = varint(in);
    if (!in->fault && size < 0) in->fault = BAD_LENGTH;
    if (!in->fault && size > in->end - in->at) in->fault = TRUNCATED;
    if (in->fault) return found;
    found.end = in->end = in->at + size;
    if (size == 0) in->fault = TRUNCATED;
    else in->at++; /* attributes: unused */
    if (!in->fault) found.timestamp_delta = varlong(in);
    if (!in->fault) found.offset_delta = varint(in);
    if (!in->fault) found.key = bytes_of(in, -1);
    if (!in->fault) found.value = bytes_of(in, -1);
    if (!in->fault) found.headers = varint(in);
    if (!in->fault && found.headers < 0) in->fault = BAD_LENGTH;
    return found;
}

static int64_t length_of(struct piece bytes) { return bytes.size < 0 ? 0 : bytes.size; }

static void measure_headers(struct cursor *in, int32_t count, struct totals *sum) {
    for (int32_t i = 0; i < count && !in->fault; i++) {
        struct piece key = bytes_of(in, 0);
        if (!in->fault && !is_utf8(key)) in->fault = BAD_UTF8;
        if (in->fault) return;
        struct piece value = bytes_of(in, -1);
        if (in->fault) return;
        sum->headers++;
        sum->header_key_bytes += key.size;
        sum->header_value_bytes += length_of(value);
        sum->null_header_values += value.size < 0;
    }
}

static int is_too_large(const struct totals *sum) {
    return sum->key_bytes > INT32_MAX || sum->value_bytes > INT32_MAX || sum->headers > INT32_MAX ||
           sum->header_key_bytes > INT32_MAX || sum->header_value_bytes > INT32_MAX;
}

/* Checks `count` records in `size` bytes and says what they need. */
EXPORT int32_t measure_records(const uint8_t *bytes, int64_t size, int32_t count, int64_t base_timestamp,
                               struct totals *sum) {
    struct cursor in = {bytes, bytes + size, NONE};
    int64_t timestamp;
    memset(sum, 0, sizeof *sum);
    sum->dense = 1;
    for (int32_t i = 0; i < count; i++) {
        sum->bad_record = i;
        struct head record = head_of(&in);
        if (!in.fault) measure_headers(&in, record.headers, sum);
        if (!in.fault && in.at != record.end) in.fault = BAD_LENGTH;
        if (!in.fault && __builtin_add_overflow(base_timestamp, record.timestamp_delta, &timestamp))
            in.fault = BAD_TIMESTAMP;
        if (in.fault) return in.fault;
        in.end = bytes + size;
        sum->key_bytes += length_of(record.key);
        sum->value_bytes += length_of(record.value);
        sum->null_keys += record.key.size < 0;
        sum->null_values += record.value.size < 0;
        sum->dense &= record.offset_delta == i;
        if (is_too_large(sum)) return TOO_LARGE;
    }
    sum->bad_record = count;
    return in.at == in.end ? NONE : LEFT_OVER;
}

static void set_bit(uint8_t *bitmap, int64_t at) { bitmap[at >> 3] |= (uint8_t)(1 << (at & 7)); }

/* Puts `bytes` as the value `row` of a binary array. */
static void put(struct piece bytes, int64_t row, int32_t *ends, uint8_t *data, uint8_t *validity) {
    int32_t size = (int32_t)length_of(bytes);
    if (size) memcpy(data + ends[row], bytes.at, (size_t)size);
    ends[row + 1] = ends[row] + size;
    if (validity && bytes.size >= 0) set_bit(validity, row);
}

/* Fills `out` with the records that `measure_records` has checked. */
EXPORT void decode_records(const uint8_t *bytes, int64_t size, int32_t count, int64_t base_timestamp,
                           const struct columns *out) {
    struct cursor in = {bytes, bytes + size, NONE};
    int64_t header = 0;
    out->key_ends[0] = out->value_ends[0] = out->header_ends[0] = 0;
    out->header_key_ends[0] = out->header_value_ends[0] = 0;
    for (int32_t row = 0; row < count; row++) {
        struct head record = head_of(&in);
        out->timestamps[row] = base_timestamp + record.timestamp_delta;
        out->offset_deltas[row] = record.offset_delta;
        put(record.key, row, out->key_ends, out->keys, out->key_validity);
        put(record.value, row, out->value_ends, out->values, out->value_validity);
        for (int32_t i = 0; i < record.headers; i++, header++) {
            put(bytes_of(&in, 0), header, out->header_key_ends, out->header_keys, NULL);
            put(bytes_of(&in, -1), header, out->header_value_ends, out->header_values, out->header_value_validity);
        }
        out->header_ends[row + 1] = (int32_t)header;
        in.end = bytes + size;
    }
}

/* ---- writing */

struct binary { /* an Arrow array of binary: `ends` and `validity` begin at the array's first row, bit `at` */
    const int32_t *ends;
    const uint8_t *data, *validity; /* validity NULL: no nulls */
    int64_t at;
};

struct rows { /* the columns to encode */
    const int64_t *offsets, *timestamps;
    struct binary keys, values;
    const int32_t *header_ends; /* NULL: no record has headers */
    struct binary header_keys, header_values;
};

static int size_of_varlong(int64_t value) {
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    return bits < 0x80 ? 1 : (63 - __builtin_clzll(bits)) / 7 + 1;
}

static struct piece value_of(const struct binary *array, int64_t row) {
    int64_t bit = array->at + row;
    if (array->validity && !(array->validity[bit >> 3] >> (bit & 7) & 1)) return (struct piece){NULL, -1};
    return (struct piece){array->data + array->ends[row], array->ends[row + 1] - array->ends[row]};
}

static int64_t size_of_bytes(struct piece bytes) { return size_of_varlong(bytes.size) + length_of(bytes); }

/* The difference of two numbers, which wraps: readers add it again in the same way. */
static int64_t delta_of(const int64_t *numbers, int64_t base, int64_t row) {
    return (int64_t)((uint64_t)numbers[row] - (uint64_t)numbers[base]);
}

/* The bytes of a record without its length. */
static int64_t size_of_record(const struct rows *in, int64_t base, int64_t row) {
    int32_t first = in->header_ends ? in->header_ends[row] : 0, last = in->header_ends ? in->header_ends[row + 1] : 0;
    int64_t size = 1 + size_of_varlong(delta_of(in->timestamps, base, row)) +
                   size_of_varlong(delta_of(in->offsets, base, row)) + size_of_bytes(value_of(&in->keys, row)) +
                   size_of_bytes(value_of(&in->values, row)) + size_of_varlong(last - first);
    for (int32_t i = first; i < last; i++)
        size += size_of_bytes(value_of(&in->header_keys, i)) + size_of_bytes(value_of(&in->header_values, i));
    return size;
}

struct extent { /* of the records from `base` on that fit */
    int64_t rows, bytes, timestamp_max;
};

/* How many of the rows `base` .. `end` - 1 fit into `bytes_max`: one at least, and no more than have offsets within
 * 31 bits of the first. */
EXPORT void measure_rows(const struct rows *in, int64_t base, int64_t end, int64_t bytes_max, struct extent *found) {
    *found = (struct extent){0, 0, in->timestamps[base]};
    for (int64_t row = base; row < end && delta_of(in->offsets, base, row) < INT32_MAX; row++) {
        int64_t size = size_of_record(in, base, row);
        size += size_of_varlong(size);
        if (found->rows && found->bytes + size > bytes_max) return;
        found->rows++;
        found->bytes += size;
        if (in->timestamps[row] > found->timestamp_max) found->timestamp_max = in->timestamps[row];
    }
}

static uint8_t *write_varlong(uint8_t *out, int64_t value) {
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; bits >= 0x80; bits >>= 7) *out++ = (uint8_t)(bits | 0x80);
    *out++ = (uint8_t)bits;
    return out;
}

static uint8_t *write_bytes(uint8_t *out, struct piece bytes) {
    out = write_varlong(out, bytes.size);
    if (bytes.size > 0) memcpy(out, bytes.at, (size_t)bytes.size);
    return out + length_of(bytes);
}

/* Writes the `count` rows from `base` on; `out` has the bytes that `measure_rows` found. */
EXPORT void encode_rows(const struct rows *in, int64_t base, int64_t count, uint8_t *out) {
    for (int64_t row = base; row < base + count; row++) {
        int32_t first = in->header_ends ? in->header_ends[row] : 0;
        int32_t last = in->header_ends ? in->header_ends[row + 1] : 0;
        out = write_varlong(out, size_of_record(in, base, row));
        *out++ = 0; /* attributes */
        out = write_varlong(out, delta_of(in->timestamps, base, row));
        out = write_varlong(out, delta_of(in->offsets, base, row));
        out = write_bytes(out, value_of(&in->keys, row));
        out = write_bytes(out, value_of(&in->values, row));
        out = write_varlong(out, last - first);
        for (int32_t i = first; i < last; i++) {
            out = write_bytes(out, value_of(&in->header_keys, i));
            out = write_bytes(out, value_of(&in->header_values, i));
        }
    }
}
