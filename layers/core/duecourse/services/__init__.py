"""AWS, RabbitMQ and secrets. Most classes implement a Protocol of the room that uses them, such as `Publisher`."""
