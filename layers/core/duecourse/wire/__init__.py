"""The JSON shapes that cross a process boundary: requests, answers and rejections."""
