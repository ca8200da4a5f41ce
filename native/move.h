// Bytes from one place to another.
// Vectors by hand: a loop over bytes becomes a call of memcpy, which takes strings of bytes that are not aligned badly.
VECTOR(Line, uchar, 64)
FUNC void move(GLOBAL const uchar* restrict x, GLOBAL uchar* restrict y, const long n) {
  long i = 0;
  for (; i + 256 <= n; i += 256) {
    const Line a = *(GLOBAL const Line*)(x + i), b = *(GLOBAL const Line*)(x + i + 64);
    const Line c = *(GLOBAL const Line*)(x + i + 128), d = *(GLOBAL const Line*)(x + i + 192);
    *(GLOBAL Line*)(y + i) = a;
    *(GLOBAL Line*)(y + i + 64) = b;
    *(GLOBAL Line*)(y + i + 128) = c;
    *(GLOBAL Line*)(y + i + 192) = d;
  }
  for (; i < n; ++i) y[i] = x[i];
}
