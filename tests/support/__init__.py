"""What the tests share: a clock set by hand, real Redis servers, a connection that loses replies."""
